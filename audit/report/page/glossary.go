package page

// purpose is a report's first paragraph.
const purpose = "Lapse deletes rows of a database when a policy says that they are due. This page is made of its signed log, which has what PostgreSQL itself recorded of " +
	"deletions in the policies’ tables, no matter by whom. It says nothing that is not in the log."

// glossary explains the words that a reader new to Lapse needs.
var glossary = []Word{
	{"policy", "a rule that says when rows of a table are due, which is when their time is over, and what Lapse does with them then."},
	{"log", "the record of all deletions that Lapse keeps; entries are only added, and a key signs them. The report is made of it alone."},
	{"verdict", "of each policy, the worst that was found. Fail: a line that must be zero is not. Not assessed: nobody can say. Warn: somebody should know. Pass: none of these."},
	{"write-ahead log", "PostgreSQL’s own record of every change, written whether somebody wants it or not. The checking program reads deletions there."},
	{"checking program, or auditor", "lapse audit: it reads the write-ahead log, compares it with the claims, and writes the log. It deletes nothing."},
	{"batch", "one transaction in which a policy deletes some of its rows."},
	{"cascade", "PostgreSQL deletes rows of other tables too if they refer to a deleted row and their foreign key says so."},
	{"claim", "what a batch writes down in its own transaction: that it deleted these rows, with proof by a key."},
	{"unverified", "of deletions: somebody wrote a claim to them, in the name of Lapse, that none of its keys proves."},
	{"hold", "a legal hold: rows that must not be deleted while a matter is open."},
	{"quarantine", "rows that are due and that could not be deleted, set aside with the reason, so that the others go on."},
	{"latitude", "the grace period: how long after its due time a row may still be there before it counts as overdue."},
	{"checkpoint", "how many records the log has and a digest of all of them, signed: nobody can change a record below it unseen."},
	{"floor", "the least age at which rows of a table may be deleted, by lapse.yaml; no policy may go below it."},
}
