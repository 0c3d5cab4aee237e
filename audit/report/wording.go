package report

import (
	"cmp"

	"lapse/audit/evidence"
)

// About is the subject of a figure or a finding.
type About string

// The lines that must be zero, in the order of Policy.Zero.
const (
	ClaimedNotObserved About = "claimed_not_observed"
	ObservedNotClaimed About = "observed_not_claimed"
	DeletedNotDue      About = "deleted_not_due"
	DeletedHeld        About = "deleted_held"
	Unverified         About = "unverified"
	Overdue            About = "overdue"
	Gaps               About = "gaps"
	BelowFloor         About = "deleted_below_floor"
)

// Other subjects of findings.
const (
	NoEndSnapshot   About = "no_snapshot_at_end"
	TablesUncovered About = "tables_not_covered"
	NotDescribed    About = "policy_not_in_log"
	EditedByHand    About = "edited_by_hand"
	Restored        About = "restored"
	Quarantined     About = "quarantined"
	DeletedLate     About = "deleted_late"
	NotArmed        About = "not_armed"
	WasPaused       About = "paused"
	WasHalted       About = "halted"
	ClockSetBack    About = "clock_set_back"
	Misdated        About = "misdated"
	Unproven        About = "unproven_claims"
	OtherRecords    About = "records_of_other_kinds"
)

// ZeroLines lists the lines that must be zero, in order.
var ZeroLines = []About{ClaimedNotObserved, ObservedNotClaimed, DeletedNotDue, DeletedHeld, Unverified, Overdue, Gaps, BelowFloor}

// Title is the line's name for readers.
func (a About) Title() string { return titles[a][0] }

// Means explains in a sentence what the line counts.
func (a About) Means() string { return titles[a][1] }

var titles = map[About][2]string{
	ClaimedNotObserved: {"Claimed and not observed", "Rows that a batch of the policy says (claims) it deleted, and that the write-ahead log does not have."},
	ObservedNotClaimed: {"Observed and not claimed", "Rows that went in a batch of the policy, and that the batch does not say it deleted."},
	DeletedNotDue:      {"Deleted and not due", "Rows that the policy deleted before they were due, by their value in the write-ahead log."},
	DeletedHeld:        {"Deleted under a hold", "Rows that the policy deleted while a legal hold was to keep them."},
	Unverified:         {"Unverified", "Rows of the policy's tables that somebody deleted in the name of Lapse without its key: the claim to them does not verify."},
	Overdue:            {"Overdue (past due and grace period)", "Rows at the last count of the period that should have gone by then, less held ones and those in quarantine."},
	Gaps:               {"Gaps", "Stretches of the write-ahead log that nobody read."},
	BelowFloor:         {"Deleted below a floor", "Rows that were deleted before they had the least age that lapse.yaml sets for their table, its floor."},
	NoEndSnapshot:      {"No count at the end", "What was due was not counted in the last two days of the period."},
	TablesUncovered:    {"Tables not covered", "A table of the policy, or a partition of it, was not published for a while, or is gone without a record of its rows."},
	NotDescribed:       {"Not described", "The log has deletions of the policy and no record that says what it is."},
	EditedByHand:       {"Edited by hand", "Rows of Lapse's own tables were changed by somebody who used no command."},
	Restored:           {"Restored", "The database was put back to an earlier state: rows that were deleted came back."},
	Quarantined:        {"In quarantine", "Rows that could not be deleted are set aside. The log has their number only: lapse quarantine list says why, where the database is."},
	DeletedLate:        {"Deleted late", "Rows went later than due time and grace period allow: while the policy waited to be armed, was paused, or was behind."},
	NotArmed:           {"Not armed", "The policy did not delete at the end of the period: somebody has to arm it."},
	WasPaused:          {"Paused", "The policy was paused for a while."},
	WasHalted:          {"Halted", "All policies were stopped for a while."},
	ClockSetBack:       {"Clock set back", "The database's clock went back by more than a minute."},
	Misdated:           {"Misdated", "Transactions name a time at which the server was not: who replays those of elsewhere chooses it."},
	Unproven:           {"Claims that prove nothing", "Somebody wrote into the ledger what no key verifies, in a transaction that deleted from the policy's table."},
	OtherRecords:       {"Records of other kinds", "The log has records that this version of the report does not know."},
}

// Reason is why something was not assessed.
type Reason string

// The reasons.
const (
	EvidenceClaimed   Reason = "evidence_claimed"
	DropsNotSent      Reason = "drops_are_not_sent"
	SomeUnknown       Reason = "some_values_unknown"
	KeysNotInLog      Reason = "held_keys_not_in_log"
	UsersNotJudged    Reason = "user_deletes_not_judged"
	UsersPartlyJudged Reason = "some_user_deletes_not_judged"
	NoSnapshot        Reason = "no_snapshot"
	NoLatitude        Reason = "no_latitude"
	QuarantineInside  Reason = "quarantine_not_separable"
	Truncated         Reason = "truncated"
	InGap             Reason = "gap"
	AcrossRewind      Reason = "rewind_between"
	NoHistogram       Reason = "no_histogram_in_log"
	BetweenSteps      Reason = "between_steps"
	NotRecorded       Reason = "not_recorded"
	VacuumNotLogged   Reason = "vacuum_not_logged"
	NothingDeleted    Reason = "nothing_deleted"
	NothingDue        Reason = "nothing_due"
	NotStated         Reason = "not_stated_before_period"
	FloorNotCompared  Reason = "floor_not_compared"
	ResultMissing     Reason = "result_missing"
)

// Text explains the reason in a sentence.
func (r Reason) Text() string { return reasons[r] }

var reasons = map[Reason]string{
	EvidenceClaimed:   `The policy has "evidence: claimed": the log has no due time of a deleted row, only the policy's own word.`,
	DropsNotSent:      "Partitions were dropped whole: the server publishes no row of them, only the dropping function's count.",
	SomeUnknown:       "For some deleted rows the write-ahead log has no due time that can be read.",
	KeysNotInLog:      "A legal hold touches tables of the policy. Which rows it holds would name people: the log has only a digest. Only a look at the table shows whether they are there.",
	UsersNotJudged:    `The log says of rows that others deleted whether they were due where a policy deletes from the table with "evidence: due", and nowhere else.`,
	UsersPartlyJudged: `Of some of these rows the log does not say whether they were due: the policy had a condition or no "evidence: due", was just being changed, or the row's due time cannot be read.`,
	NoSnapshot:        "What was due was not counted at the time in question.",
	NoLatitude:        "The policy has no latitude (grace period): nothing says how late is too late.",
	QuarantineInside:  "Some rows are in quarantine, and the count does not say how many of those past due are.",
	Truncated:         "A table was truncated: the write-ahead log does not say how many rows went.",
	InGap:             "Nobody read a part of the write-ahead log in between.",
	AcrossRewind:      "The database was put back to an earlier state in between.",
	NoHistogram:       "For some deleted rows the log, of a former version, does not say how late they went.",
	BetweenSteps:      "The log has lateness in steps, and the latitude (grace period) lies between two of them.",
	NotRecorded:       "No record of the log has it.",
	VacuumNotLogged:   "No record says when the bytes of a deleted row leave the table's file: vacuum frees them, and they are overwritten some time after. Ask the people who run the database when it last ran.",
	NothingDeleted:    "Nothing was deleted.",
	NothingDue:        "Nothing was due.",
	NotStated:         "The log does not say how it was before the period.",
	FloorNotCompared:  "The log has that least age, the floor, and not the age of each deleted row.",
	Withheld:          "Numbers below five are not said, nor what would give one away.",
	ResultMissing:     "A batch has no result of its own: how many rows it says it deleted is not known.",
}

// Cause explains the reason of a gap or a rewind.
func Cause(reason string) string { return cmp.Or(causes[evidence.Reason(reason)], reason) }

var causes = map[evidence.Reason]string{
	evidence.ReasonSlot:         "its place in the write-ahead log was lost (slot)",
	evidence.ReasonPublications: "what is published was changed (publications)",
	evidence.ReasonTopic:        "a topic lost records (topic)",
	evidence.ReasonAccepted:     "a person accepted a database with another past (accepted)",
	evidence.ReasonTimeline:     "a standby took over that had not received everything (timeline)",
}
