// Package setup is what changes an installation: installing, comparing a policy file with a database, applying it, dropping
// what is no longer in it, uninstalling. It puts planner and replication together; commands keep flags, questions and
// printing.
//
// It promises that every operation can be repeated: what is there stays, what is missing is made, two at once wait for each
// other, and after a crash between two steps, or inside one, the next call ends where an undisturbed one would have. It never
// waits for a lock on a user's table for longer than 250 ms at a time, and locks no table that is published already.
//
// It refuses
//
//   - a schema "lapse" that is not Lapse's, before anything in it is touched (CheckSchema);
//   - a catalog of a newer program, or one with a version that was made from other files (CatalogError);
//   - roles that can do too much (CheckRoles), and keys that are not those of the installation (KeysError);
//   - an owner of tables that would own the catalog (CircleError);
//   - a table that cannot be published (replication.IdentityError);
//   - a slot that is gone, until somebody says that another is to be made (Installer.NewSlot).
//
// What the session may not do itself is an error with the statement that somebody else must run (GrantError, SuperuserError);
// GrantsSQL has all of them.
//
// Install makes what is missing, step by step (install.go, login.go, publications.go, slot.go), with the
// parts that know neither policies nor publications (roles.go, logins.go, members.go, schema.go, catalog.go):
//
//	step          does                                          a crash after it leaves, and who repairs it
//	look          refuses servers and schemas, changes nothing   nothing
//	roles         makes roles and logins, with their grants      roles that own nothing; the next init uses them
//	keys          has the keys made                              keys of no database; the next init uses them
//	catalog       migrates schema lapse, version by version,     a catalog that lets no batch through; the next init goes on;
//	              records them and the fingerprints; gives       inside it a former version, whole: see catalog.go
//	              roles back what they lost: rights.go
//	publications  takes the slot off the record if one of them   empty publications; the next init goes on, and asks for
//	              was missing, makes them                        --new-slot if there was a slot
//	ledger        publishes the tables of evidence               as above: batches are refused until all is on record
//	tables        publishes the tables of policies in force      as above
//	record        records what is published                      no slot: batches are refused; the next init makes it
//	slot          makes the slot, records where it begins,       all is there; inside it see slot.go
//	              restates the policies
//	holds         ends what a command that places a hold was  holds that are enforced, and not said to be effective; the next
//	              killed in                                   command about holds, or init
//	retention     looks at max_slot_wal_keep_size                all is there
//
// Publications come before the slot: a slot that is older than one is stuck for good.
//
// Difference compares and changes nothing (difference.go). Apply brings its changes into force, in three passes over the
// policies and a last step (apply.go, index.go, madeindex.go, drop.go, deleter.go, unused.go). One policy is one transaction,
// tried again while somebody holds a lock:
//
//	step        does                                               a crash after it leaves, and who repairs it
//	careful     gates → functions, version, gate, state of what    those policies are whole; the next apply goes on with the others
//	            pauses, drops, observes or lengthens
//	rest        the index, where the policy asks for one; then     see index.go
//	            gates → deleter → functions, version, gate,        as above: a policy is there with its deleter and its publications,
//	            state → publications, of everything else           or not at all
//	leave       drops indexes of Lapse's that nobody asks for      they are on record; the next apply drops them
//	            takes tables of dropped policies out of the        tables that are published for nobody; the next apply, which
//	            publications, without waiting                      finds them by the dropped policies
//	deleters    drops the roles that delete for nobody, and takes  they are on record in lapse.deleter; the next apply drops them,
//	            from the others what no policy needs               and looks for such rights anew
//
// Each pass is done for each policy in turn: a crash within a pass leaves some policies as they were. The position that an
// armed policy's auditor must pass is written after the commit; the executor writes it where a crash came between. What is
// published is read once per Apply, and a table joined at most once.
//
// Uninstall is the reverse (uninstall.go):
//
//	step          does                                    a crash after it leaves, and who repairs it
//	pause         turns the switch for all policies       an installation that deletes nothing; the next Uninstall goes on
//	indexes       drops those that Lapse made             as above; what stays in use is a warning
//	catalog       publications, schema and deleters, in   the slot, which the settings name; the next Uninstall drops it
//	              one transaction
//	slot          drops the slot                          nothing but roles, topics and keys
//
// Doctor says what is wrong with a database and how to mend it (doctor.go): a list of checks for each theme (doctor_server.go,
// doctor_activity.go, doctor_installation.go, doctor_privileges.go, doctor_tables.go). It changes nothing and reads no table of a
// user's. A check more is a function, and a line in its theme's list.
//
// Where the next things go: a part that is installed, a step in install.go and a file of its own; what stands beside policies
// (holds, hidden rows, scaffolds), a file of its own, as hold.go, hide.go and scaffold.go.
package setup
