// Package install makes what is missing of an installation, step by step (install.go, roles.go, publications.go, slot.go), with
// access and site, which know the parts. It refuses to replace a lost slot until a person asks for a new one:
//
//	step          does                                          a crash after it leaves, and who repairs it
//	inspect       refuses servers and schemas, changes nothing   nothing
//	roles         makes roles and logins, with their grants      roles that own nothing; the next init uses them
//	keys          makes the keys                              keys of no database; the next init uses them
//	catalog       migrates schema lapse, version by version,     a catalog that lets no batch through; the next init goes on;
//	              records them and the fingerprints; gives       inside it a former version, whole: see site.Catalog
//	              roles back what they lost
//	publications  takes the slot off the record if one of them   empty publications; the next init goes on, and asks for
//	              was missing, makes them                        --new-slot if there was a slot
//	ledger        publishes the tables of evidence               as above: batches are refused until all is on record
//	tables        publishes the tables of policies in force      as above
//	record        records what is published                      no slot: batches are refused; the next init makes it
//	slot          makes the slot, records where it begins,       all is there; inside it see slot.go
//	              restates the policies
//	holds         ends what a command that places a hold was  holds that are enforced, and not said to be effective; the next
//	              killed in                                   command about holds, or init
//	retention     checks max_slot_wal_keep_size                all is there
//
// Publications come before the slot: a slot older than one of them would be stuck forever.
package install
