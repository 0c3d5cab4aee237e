// Package functions writes the functions of a policy version: Definition in, SQL text out. It reads no database and imports no driver
// (.golangci.yml enforces that), so two equal definitions give the same text, byte for byte.
//
// # The functions of a version
//
// A version has four functions, or five if it drops partitions, with the policy's id and the version's number in their names. A version
// never changes, and neither do they.
//
//	function            text               what it does                                          who calls it
//	lapse.delete_1_3    delete.sql.tmpl    a batch: ledger row, the one DELETE or UPDATE, result   the executor
//	lapse.find_1_3      find.sql.tmpl      returns where a batch's rows are, as values; only reads lapse.delete_1_3 alone
//	lapse.drop_1_3      drop.sql.tmpl      drops a partition when every row in it is due           the executor
//	lapse.due_1_3       look.sql.tmpl      which leaves have a due row, before a run; only reads   the executor
//	lapse.survey_1_3    survey.sql.tmpl    counts what is due, and explains it; only reads         plan, the breaker, the cuts of a run
//
// Two exist only in a session's temporary schema, and check their table by planner/database/draft.sql: the survey of a policy that is not
// applied, and match.sql.tmpl, which finds the keys of a hold that no row has.
//
// # What to read
//
// To know what can be deleted, read delete.sql.tmpl, or the first function of testdata/plain.sql: 91 lines. Its DELETE has the whole
// condition of the policy, and constant fragments added by AND: by row address, by page, or by range. Whatever find_1_3 returns can only make
// it delete less. The head of schemas/migrations/0001_11_batch.sql lists what it calls.
//
// The condition comes from planner/expiry, a file per kind. pick.go, shape.go and slice.go say how a batch finds its rows, soft.go what an
// UPDATE sets instead of a DELETE.
//
// # What it refuses
//
// A definition that is below one of its floors (floor.go). A name or a condition that would end a function's body, or the comment above
// it. A deletion whose one DELETE does not restate the condition: see restates.
//
// # Changing a text
//
// go test ./planner/functions -update rewrites testdata: all functions of one policy, and of the others what differs. The tests'
// definitions are in internal/fixture/definitions, because planner's tests use them too.
package functions
