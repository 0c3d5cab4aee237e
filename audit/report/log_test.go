package report_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/audit/report"
)

// log is a log that a test writes, record by record, as JSON: what the report reads is what the parsers of evidence read.
type log struct {
	t       testing.TB
	records []string
	signed  []int64 // sizes of checkpoints
	lsn     uint64
	history int
	xid     uint32
}

var began = time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)

// minute is an instant of the log.
func minute(n int) time.Time { return began.Add(time.Duration(n) * time.Minute) }

func text(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// newLog has an origin, a route, and a heartbeat at minute 0.
func newLog(t testing.TB) *log {
	l := &log{t: t, history: 1, lsn: 1 << 20, xid: 1000}
	l.add("origin", `"slot":"s","consistent_point":"0/1","keys":[{"use":"log","public_key":"a+1+b"}]`)
	l.add("route", `"routing":{}`)
	l.beat(minute(0))
	return l
}

func (l *log) add(kind, members string) *log {
	l.lsn += 256
	l.records = append(l.records, fmt.Sprintf(
		`{"kind":%q,"schema":1,"system_identifier":"7","database":"app","database_oid":5,"route_version":1,"route":"r","history":%d,"nonce":"0198f1d0-0000-7000-8000-0000000000aa","timeline":1,"reached":"%X/%X","seq":0,%s}`,
		kind, l.history, l.lsn>>32, uint32(l.lsn), members))
	return l
}

func (l *log) reach() string {
	return fmt.Sprintf(`{"history":%d,"timeline":1,"lsn":"%X/%X"}`, l.history, l.lsn>>32, uint32(l.lsn))
}

func heartbeat(at time.Time) string {
	return fmt.Sprintf(`"heartbeat":{"nonce":"%s","at":%q,"history":1,"timeline":1,"server_start":%q,"faults":0}`, uuid.New(), text(at), text(began))
}

// beat adds a heartbeat, and signs all there is.
func (l *log) beat(at time.Time) *log {
	l.add("coverage", fmt.Sprintf(`"at":%q,%s,"ancestry":[]`, text(at), heartbeat(at)))
	l.signed = append(l.signed, int64(len(l.records)))
	return l
}

func (l *log) committed(at time.Time) string {
	l.xid++
	return fmt.Sprintf(`"commit_lsn":"%X/%X","commit_timestamp":%q,"xid":%d`, (l.lsn+128)>>32, uint32(l.lsn+128), text(at), l.xid)
}

// row adds a row about policies.
func (l *log) row(at time.Time, row, op string, is map[string]any) *log {
	body, _ := json.Marshal(is)
	return l.add("policy", fmt.Sprintf(`%s,"row":%q,"op":%q,"is":%s`, l.committed(at), row, op, body))
}

// policy makes a policy of a table, and arms it.
func (l *log) policy(at time.Time, id int, name string, oid int, terms map[string]any) *log {
	l.row(at, "version", "insert", map[string]any{"policy": name, "id": id, "version": 1, "table": "public." + name, "table_oid": oid, "at": text(at), "by": "alice", "reason": "OPS-1", "terms": terms})
	return l.state(at, id, 1, "armed")
}

func (l *log) state(at time.Time, id, version int, state string) *log {
	return l.row(at, "state", "insert", map[string]any{"id": id, "version": version, "state": state, "at": text(at), "by": "bob", "reason": "OPS-2"})
}

var dueTerms = map[string]any{"expire": map[string]any{"column": "at", "after": "30 days"}, "every": "00:05:00", "action": "delete", "evidence": "due", "latitude": "1 day"}

// tally is a line of what was observed.
func tally(table string, oid int, op, cause string, events int, judged string) string {
	return fmt.Sprintf(`{"table":%q,"table_oid":%d,"op":%q,"cause":%q,"cascade":false,"events":%d%s}`, table, oid, op, cause, events, judged)
}

func allDue(n int) string { return fmt.Sprintf(`,"due":%d,"not_due":0,"unknown":0`, n) }

// batch adds a policy's batch.
func (l *log) batch(at time.Time, name string, oid, claimed, observed int, verdict, judged string) *log {
	return l.add("transaction", fmt.Sprintf(
		`%s,"verdict":%q,"claim":{"policy":%q,"policy_version":1,"run":"%s","batch":"%s","cutoff":%q,"hold_version":0,"target":%d,"functions":"00"},"claimed":{"picked":%d,"deleted":%d,"by_relation":[{"table_oid":%d,"rows":%d}]},"observed":[%s]`,
		l.committed(at), verdict, name, uuid.New(), uuid.New(), text(at), oid, claimed, claimed, oid, claimed, tally("public."+name, oid, "delete", "system", observed, judged)))
}

// user adds a transaction of somebody else.
func (l *log) user(at time.Time, name string, oid int, op, cause string, events int) *log {
	return l.add("transaction", fmt.Sprintf(`%s,"verdict":"unclaimed","observed":[%s]`, l.committed(at), tally("public."+name, oid, op, cause, events, "")))
}

// snapshot adds the three records of a count.
func (l *log) snapshot(at time.Time, id int, name, seen, counted string) *log {
	number := uuid.New()
	step := func(step, more string) {
		l.add("snapshot", fmt.Sprintf(`%s,"snapshot":"%s","step":%q,"policy_id":%d,"policy":%q,"version":1,"at":%q,"by":"lapse"%s`, l.committed(at), number, step, id, name, text(at), more))
	}
	step("begun", "")
	step("taken", fmt.Sprintf(`,"seen":%q,"cutoff":%q`, seen, text(at)))
	step("counted", counted)
	return l
}

// sees is a snapshot that sees all transactions so far.
func (l *log) sees() string { return fmt.Sprintf("%d:%d:", l.xid+1, l.xid+1) }

func counts(due, overdue, held, quarantined int) string {
	return fmt.Sprintf(`,"counted":{"due":%d,"overdue":%d,"held":%d,"quarantined":%d}`, due, overdue, held, quarantined)
}

// parsed are the log's records.
func (l *log) parsed() (all []*evidence.LogRecord) {
	l.t.Helper()
	for _, value := range l.records {
		r, err := evidence.ParseLogRecord([]byte(value))
		if err != nil {
			l.t.Fatalf("%v in %s", err, value)
		}
		all = append(all, r)
	}
	return all
}

// pass hands the log over, each checkpoint after its last record.
func (l *log) pass(all []*evidence.LogRecord, take func(int64, *evidence.LogRecord), signed func(report.Checkpoint)) {
	next := 0
	for leaf, r := range all {
		take(int64(leaf), r)
		for signed != nil && next < len(l.signed) && l.signed[next] == int64(leaf)+1 {
			signed(report.Checkpoint{Records: l.signed[next], Root: fmt.Sprint("root of ", l.signed[next])})
			next++
		}
	}
}

// report makes one.
func (l *log) report(from, to time.Time, only ...string) (*report.Report, error) {
	l.t.Helper()
	all := l.parsed()
	bounds, err := report.NewBounds(report.Question{From: from, To: to, Only: only})
	if err != nil {
		return nil, err
	}
	for again := true; again; {
		l.pass(all, bounds.Record, bounds.Checkpoint)
		if again = bounds.Misdated(); again {
			bounds = bounds.Again()
		}
	}
	if err := bounds.End(); err != nil {
		return nil, err
	}
	count := bounds.Count()
	l.pass(all, count.Record, nil)
	r, err := count.Report()
	if err != nil {
		return nil, err
	}
	written, err := r.Canonical()
	if err != nil {
		l.t.Fatal(err)
	}
	if t, is := l.t.(*testing.T); is {
		checkSchema(t, written)
	}
	if _, err := report.Parse(written); err != nil {
		l.t.Fatal(err)
	}
	return r, nil
}

// must is the report of a period that the log can answer for.
func (l *log) must(from, to time.Time, only ...string) *report.Report {
	l.t.Helper()
	r, err := l.report(from, to, only...)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}
