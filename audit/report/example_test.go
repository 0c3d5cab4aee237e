package report_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"lapse/audit/report"
)

var update = flag.Bool("update", false, "write testdata and the schema")

const exampleFile = "testdata/example.json"

// example is a report in which every part says something: a policy of each grade, a drop, a restore, a hold, a gap's neighbour. Its
// numbers agree with one another.
func example() *report.Report {
	at := func(day, hour, minute int) report.Instant {
		return report.At(time.Date(2026, 10, day, hour, minute, 0, 123456000, time.UTC))
	}
	n, no := report.Number, report.NotAssessed
	one := func(n int64) *int64 { return &n }
	zero := func(figures ...report.Figure) (lines []report.ZeroLine) {
		for i, about := range report.ZeroLines {
			lines = append(lines, report.ZeroLine{About: about, Figure: figures[i]})
		}
		return lines
	}
	start := report.Snapshot{
		ID: "0199a000-0000-7000-8000-000000000001", Version: 3, Begun: at(1, 0, 4), Taken: at(1, 0, 4), Counted: at(1, 0, 5), Leaf: 1210, Cutoff: at(1, 0, 4),
		Seen: "7440:7444:7441", Due: 120, Held: 2, Quarantined: 1,
	}
	end := report.Snapshot{
		ID: "0199a000-0000-7000-8000-000000000002", Version: 4, Begun: at(31, 0, 4), Taken: at(31, 0, 4), Counted: at(31, 0, 6), Leaf: 90211, Cutoff: at(31, 0, 4),
		Seen: "90440:90444:", Due: 30, Held: 5, Quarantined: 1,
	}
	skipped := report.Snapshot{
		ID: "0199a000-0000-7000-8000-000000000003", Version: 4, Begun: at(17, 0, 4), Taken: at(17, 0, 4), Counted: at(17, 0, 6), Leaf: 45000, Cutoff: at(17, 0, 4),
		Seen: "45440:45444:", NotCounted: "it takes longer than 2m0s",
	}
	notRolled := func(why report.Reason) report.RollForward {
		f := no(why)
		return report.RollForward{
			NotAssessed: why, DueStart: f, HeldStart: f, QuarantineStart: f, ByPolicy: f, ByUsers: f, DueEnd: f, HeldEnd: f, QuarantineEnd: f, FellDue: f,
		}
	}
	unknown := func(rows int64, why report.Reason) report.Timeliness {
		l := report.Lateness{NotAssessed: why}
		return report.Timeliness{
			Other: rows, Why: why, P50: l, P95: l, Worst: l, OldestPresent: report.Lateness{NotAssessed: report.NoSnapshot},
			PastDeadline: report.Figure{NotAssessed: why, AtLeast: one(0), AtMost: &rows},
		}
	}
	told := func(past int64, p50, p95, worst report.Lateness, steps ...report.LateRows) report.Timeliness {
		t := report.Timeliness{Steps: steps, P50: p50, P95: p95, Worst: worst, PastDeadline: n(past), OldestPresent: report.Lateness{Over: one(3 * 60 * 60), UpTo: one(6 * 60 * 60)}}
		for _, s := range steps {
			t.Rows += s.Rows
		}
		return t
	}
	inTime := report.Lateness{UpTo: one(60)}
	terms := func(after, evidence string) *report.Terms {
		return &report.Terms{
			Column: "last_seen", After: after, Schedule: "every 5 minutes", Action: "delete", Evidence: evidence, Latitude: "1 day", Owner: "web team", Basis: "privacy notice §3",
		}
	}
	sessions := report.Policy{
		ID: 1, Name: "sessions-30d", Table: "public.sessions", State: "armed", Version: 4, Evidence: "due", Action: "delete",
		Owner: "web team", Basis: "privacy notice §3", Latitude: "1 day", Verdict: report.Unknown,
		Findings: []report.Finding{
			{Grade: report.Unknown, About: report.DeletedHeld, Why: report.KeysNotInLog},
			{Grade: report.Unknown, About: report.BelowFloor, Why: report.FloorNotCompared},
			{Grade: report.Warn, About: report.WasPaused, Count: 1},
			{Grade: report.Warn, About: report.Quarantined, Count: 1},
			{Grade: report.Warn, About: report.DeletedLate, Count: 3},
		},
		Zero: zero(n(0), n(0), n(0), no(report.KeysNotInLog), n(0), n(0), n(0), no(report.FloorNotCompared)),
		RollForward: report.RollForward{
			Start: &start, End: &end, DueStart: n(120), HeldStart: n(2), QuarantineStart: n(1), ByPolicy: n(5000), ByUsers: n(40),
			DueEnd: n(30), HeldEnd: n(5), QuarantineEnd: n(1), FellDue: n(4953),
		},
		Deleted: report.Deleted{
			Rows: 5100, ByRow: 5100, Cascaded: 700, Batches: 52,
			Days:     []report.Day{{Day: "2026-10-01", ByRow: 2100, Cascaded: 300}, {Day: "2026-10-02", ByRow: 3000, Cascaded: 400}},
			Tables:   report.List[report.TableDeleted]{Items: []report.TableDeleted{{Table: "public.session_notes", Cascaded: 700}, {Table: "public.sessions", ByRow: 5100}}},
			Versions: []report.VersionDeleted{{Version: 3, ByRow: 2100, Cascaded: 300}, {Version: 4, ByRow: 3000, Cascaded: 400}},
		},
		Timeliness: told(3, inTime, report.Lateness{Over: one(60), UpTo: one(300)}, report.Lateness{Over: one(365 * 86400)},
			report.LateRows{UpTo: one(60), Rows: 4000}, report.LateRows{Over: one(60), UpTo: one(300), Rows: 1000}, report.LateRows{Over: one(43200), UpTo: one(86400), Rows: 97}, report.LateRows{Over: one(365 * 86400), Rows: 3}),
		Users: report.Users{
			Deleted: n(41), Truncates: n(0), Moves: n(0), Unverified: n(0), Due: n(36), NotDue: n(5), Held: no(report.KeysNotInLog),
		},
		Versions: report.List[report.Version]{Items: []report.Version{
			{Version: 3, Made: report.At(time.Date(2026, 6, 3, 9, 0, 0, 0, time.UTC)), By: "alice", Reason: "OPS-1", Table: "public.sessions", Terms: terms("60 days", "due"), InForce: true, Leaf: 12},
			{Version: 4, Made: at(2, 10, 0), By: "alice", Reason: "OPS-17: shorter, as the notice says", Table: "public.sessions", Terms: terms("30 days", "due"), Leaf: 2210},
		}},
		States: report.List[report.StateChange]{Items: []report.StateChange{
			{At: at(2, 10, 1), State: "armed", Version: 4, By: "alice", Reason: "OPS-17", Leaf: 2212},
			{At: at(9, 8, 0), State: "paused", Version: 4, By: "bob", Reason: "migration", Leaf: 9000},
			{At: at(9, 12, 0), State: "armed", Version: 4, By: "bob", Reason: "migration done", Leaf: 9400},
		}},
		Pauses:     report.List[report.Pause]{Items: []report.Pause{{From: at(9, 8, 0), To: at(9, 12, 0), Seconds: 14400, By: "bob", Reason: "migration"}}},
		Quarantine: report.Quarantine{AtStart: n(1), Entered: 2, Left: 2, AtEnd: n(1)},
		Holds:      []int64{7},
		Snapshots:  report.List[report.Snapshot]{Items: []report.Snapshot{start, skipped, end}},
		Floors:     report.List[report.RetainedAtLeast]{Items: []report.RetainedAtLeast{{Version: 4, Table: "public.sessions", Least: "7 days", Below: no(report.FloorNotCompared)}}},
	}
	bad := report.List[report.Transaction]{Items: []report.Transaction{{Leaf: 30100, XID: 30745, Commit: "0/19C2A40", At: at(12, 3, 0), Table: "public.carts", Rows: 3}}}
	carts := report.Policy{
		ID: 2, Name: `carts <"&'> 90d`, Table: "public.carts", State: "armed", Version: 1, Evidence: "claimed", Action: "delete", Latitude: "", Verdict: report.Fail,
		Findings: []report.Finding{
			{Grade: report.Fail, About: report.ClaimedNotObserved, Count: 3},
			{Grade: report.Fail, About: report.Unverified, Count: 2},
			{Grade: report.Unknown, About: report.DeletedNotDue, Why: report.EvidenceClaimed},
			{Grade: report.Unknown, About: report.Overdue, Why: report.NoLatitude},
			{Grade: report.Unknown, About: report.NoEndSnapshot},
			{Grade: report.Warn, About: report.EditedByHand, Count: 1},
			{Grade: report.Warn, About: report.WasHalted, Count: 1},
		},
		Zero:        zero(n(3), n(0), no(report.EvidenceClaimed), n(0), n(2), report.Figure{NotAssessed: report.NoLatitude, AtLeast: one(0), AtMost: one(17)}, n(0), n(0)),
		RollForward: notRolled(report.NoSnapshot),
		Deleted: report.Deleted{
			Rows: 97, ByRow: 97, Batches: 10, Days: []report.Day{{Day: "2026-10-12", ByRow: 97}},
			Tables:   report.List[report.TableDeleted]{Items: []report.TableDeleted{{Table: "public.carts", ByRow: 97}}},
			Versions: []report.VersionDeleted{{Version: 1, ByRow: 97}},
		},
		Timeliness: unknown(97, report.EvidenceClaimed),
		Users: report.Users{
			Deleted: no(report.Truncated), Truncates: n(1), Moves: n(0), Unverified: n(2), Due: no(report.UsersNotJudged), NotDue: no(report.UsersNotJudged), Held: n(0),
		},
		Versions: report.List[report.Version]{Items: []report.Version{
			{Version: 1, Made: report.At(time.Date(2026, 6, 3, 9, 0, 0, 0, time.UTC)), By: "alice", Reason: "OPS-2", Table: "public.carts", Terms: terms("90 days", "claimed"), InForce: true, Leaf: 13},
		}},
		Quarantine: report.Quarantine{AtStart: no(report.NotStated), AtEnd: no(report.NotStated)},
	}
	carts.Zero[0].Transactions = bad
	carts.Zero[4].Transactions = report.List[report.Transaction]{Items: []report.Transaction{{Leaf: 30400, XID: 30900, Commit: "0/19C9A40", At: at(12, 4, 0), Table: "public.carts", Rows: 2}}}
	events := report.Policy{
		ID: 3, Name: "events-12m", Table: "public.events", State: "armed", Version: 2, Evidence: "claimed", Action: "drop_partition", Latitude: "31 days", Verdict: report.Unknown,
		Findings:    []report.Finding{{Grade: report.Unknown, About: report.DeletedNotDue, Why: report.DropsNotSent}, {Grade: report.Warn, About: report.Restored, Count: 1}},
		Zero:        zero(n(0), n(0), no(report.DropsNotSent), n(0), n(0), n(0), n(0), n(0)),
		RollForward: notRolled(report.AcrossRewind),
		Deleted: report.Deleted{
			Rows: 1_200_000, ByDrop: 1_200_000, Batches: 1, Days: []report.Day{{Day: "2026-10-03", ByDrop: 1_200_000}},
			Tables:   report.List[report.TableDeleted]{Items: []report.TableDeleted{{Table: "public.events_2025_09", Root: "public.events", ByDrop: 1_200_000}}},
			Versions: []report.VersionDeleted{{Version: 2, ByDrop: 1_200_000}},
			Partitions: report.List[report.DroppedPartition]{Items: []report.DroppedPartition{{
				Table: "public.events_2025_09", Rows: 1_200_000, Oldest: report.At(time.Date(2025, 9, 1, 0, 0, 0, 0, time.UTC)), Newest: report.At(time.Date(2025, 9, 30, 23, 59, 59, 0, time.UTC)),
				Version: 2, XID: 8001, At: at(3, 2, 0), Leaf: 3100,
			}}},
		},
		Timeliness: unknown(1_200_000, report.DropsNotSent),
		Users:      report.Users{Deleted: n(0), Truncates: n(0), Moves: n(12), Unverified: n(0), Due: n(0), NotDue: n(0), Held: n(0)},
		Quarantine: report.Quarantine{AtStart: n(0), AtEnd: n(0)},
	}
	quiet := report.Policy{
		ID: 4, Name: "tokens-1d", Table: "public.tokens", State: "armed", Version: 1, Evidence: "due", Action: "soft", Latitude: "1 hour", Verdict: report.Pass,
		Zero:        zero(n(0), n(0), n(0), n(0), n(0), n(0), n(0), n(0)),
		RollForward: notRolled(report.NoSnapshot),
		Deleted: report.Deleted{
			Soft: 12, Batches: 3, Days: []report.Day{{Day: "2026-10-20", Soft: 12}},
			Tables:   report.List[report.TableDeleted]{Items: []report.TableDeleted{{Table: "public.tokens", Soft: 12}}},
			Versions: []report.VersionDeleted{{Version: 1, Soft: 12}},
		},
		Timeliness: told(0, inTime, inTime, inTime, report.LateRows{UpTo: one(60), Rows: 12}),
		Users:      report.Users{Deleted: n(0), Truncates: n(0), Moves: n(0), Unverified: n(0), Due: n(0), NotDue: n(0), Held: n(0)},
		Quarantine: report.Quarantine{AtStart: n(0), AtEnd: n(0)},
	}
	return &report.Report{
		Kind: "report", Schema: report.Schema,
		Period: report.Period{From: "2026-10-01T00:00:00Z", To: "2026-11-01T00:00:00Z"},
		Log: report.Log{
			Name: "app.example.com/lapse", PublicKey: "app.example.com/lapse+6fa3b1e3+AXJ4sNFU4jSb3N9XyH4E5PHzWcQ3LlQ2tLyxFSC1j9NH", SystemIdentifier: "7381000000000000001",
			Database: "app", DatabaseOID: 16384,
			Opening:   &report.Checkpoint{Records: 1200, Root: "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="},
			Closing:   report.Checkpoint{Records: 93000, Root: "u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7s="},
			FirstLeaf: 1205, Records: 91790, BeganAt: report.At(time.Date(2026, 6, 3, 8, 0, 0, 0, time.UTC)), Routes: []int{1, 2},
		},
		Policies: []report.Policy{carts, events, sessions, quiet},
		Tables: []report.Table{
			{Table: "public.carts", Policies: []string{carts.Name}, System: 97, User: 4, Unverified: 2, Truncates: 1, Days: []report.TableDay{{Day: "2026-10-12", System: 97, User: 4, Unverified: 2}}},
			{Table: "public.events", Policies: []string{events.Name}, ByDrop: 1_200_000, Moves: 12, Days: []report.TableDay{{Day: "2026-10-03", ByDrop: 1_200_000}}},
			{Table: "public.session_notes", System: 700, Days: []report.TableDay{{Day: "2026-10-01", System: 300}, {Day: "2026-10-02", System: 400}}},
			{Table: "public.sessions", Policies: []string{sessions.Name}, System: 5100, User: 41, Days: []report.TableDay{{Day: "2026-10-01", System: 2100}, {Day: "2026-10-02", System: 3000, User: 41}}},
			{Table: "public.tokens", Policies: []string{quiet.Name}, Soft: 12, Days: []report.TableDay{{Day: "2026-10-20", Soft: 12}}},
		},
		Coverage: report.Coverage{
			First: at(1, 0, 0), Last: at(31, 23, 59), Transactions: 80123, Heartbeats: 8900, SetBack: 1, Unread: 2,
			Gaps: report.List[report.Gap]{Items: []report.Gap{{Leaf: 70000, At: at(22, 1, 0), Reason: "topic", Topic: "lapse.deletes.user", From: "1/1/0/19C2B00", To: "1/1/0/19C3000"}}},
			Tables: report.List[report.TableChange]{Items: []report.TableChange{
				{Leaf: 3105, At: at(3, 2, 1), Table: "public.events_2025_09", Root: "public.events", Change: "ends", Told: true},
				{Leaf: 5105, At: at(5, 2, 1), Table: "public.events_2026_11", Root: "public.events", Change: "begins"},
			}},
			Misdated: report.List[report.Transaction]{Items: []report.Transaction{{Leaf: 61000, XID: 61745, Commit: "0/19CFA40", At: report.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)), Rows: 1}}},
			Unproven: report.List[report.Transaction]{Items: []report.Transaction{{Leaf: 30400, XID: 30900, Commit: "0/19C9A40", At: at(12, 4, 0), Table: "public.carts", Rows: 2}}},
		},
		Rewinds: report.List[report.Rewind]{Items: []report.Rewind{{
			Leaf: 40000, At: at(15, 6, 0), Reason: "accepted", From: "1/1/0/19D0000", To: "1/1/0/19E0000", Users: 5,
			Policies: []report.RewoundPolicy{{Policy: sessions.Name, BroughtBack: 60, DeletedSince: 75, FirstSince: at(15, 6, 5), LastSince: at(31, 23, 0)}},
		}}},
		Holds: report.List[report.Hold]{Items: []report.Hold{{
			Hold: 7, Matter: "LIT-2026-4", Table: "public.sessions", Keys: 2, Digest: "abababababababababababababababababababababababababababababababab", Placed: at(4, 11, 0), By: "counsel", Reason: "claim of a customer",
			State: "effective", Position: "0/19C2A00", Policies: []string{sessions.Name},
			States: report.List[report.HoldChange]{Items: []report.HoldChange{{At: at(4, 11, 0), State: "requested", By: "counsel", Reason: "claim of a customer", Leaf: 4400}, {At: at(4, 11, 1), State: "effective", By: "lapse", Leaf: 4402}}},
		}}},
		Halts: report.List[report.Halt]{Items: []report.Halt{
			{At: at(12, 5, 0), Halted: true, Alarm: true, By: "lapse", Reason: "a batch does not verify", Leaf: 30405}, {At: at(12, 9, 0), By: "bob", Reason: "forged by hand, see INC-9", Leaf: 30500},
		}},
		ByHand: report.List[report.HandEdit]{Items: []report.HandEdit{{At: at(12, 3, 59), What: "policy", Row: "gate", Op: "update", Policy: carts.Name, XID: 30899, Leaf: 30399}}},
		Residue: report.Residue{VacuumHorizon: no(report.VacuumNotLogged), Declared: report.List[report.Declaration]{Items: []report.Declaration{
			{At: report.At(time.Date(2026, 6, 3, 8, 0, 0, 0, time.UTC)), Leaf: 2}, {At: at(11, 8, 0), WALArchive: "14 days", Backups: "35 days, then overwritten", Leaf: 29000},
		}}},
	}
}

func TestTheExampleIsCanonicalAndOfTheSchema(t *testing.T) {
	t.Parallel()
	text, err := example().Canonical()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(exampleFile, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(exampleFile)
	if err != nil || string(is) != string(text) {
		t.Errorf("%s is not what the example gives: go test ./audit/report -update: %v", exampleFile, err)
	}
	again, err := report.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := again.Canonical(); err != nil || string(second) != string(text) {
		t.Errorf("read and written it is other bytes: %v", err)
	}
	if !*update { // the other test writes the schema
		checkSchema(t, text)
	}
}

func TestAnEditedReportIsRefused(t *testing.T) {
	t.Parallel()
	text, err := example().Canonical()
	if err != nil {
		t.Fatal(err)
	}
	for name, edited := range map[string]string{
		"a blank":        "{ " + string(text[1:]),
		"no line feed":   string(text[:len(text)-1]),
		"another member": `{"more":1,` + string(text[1:]),
		"another schema": `{"kind":"report","schema":2,` + string(text[len(`{"kind":"report","schema":1,`):]),
		"text after it":  string(text) + "{}",
	} {
		if _, err := report.Parse([]byte(edited)); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}
