package audit_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/internal/kafkatest"
)

// asReplica does what a superuser may do to rows that are append-only.
const asReplica = `set session_replication_role = replica; `

// A policy and a hold, as commands write them.
const (
	aPolicy = `insert into lapse.policy (id, version, name, table_oid, table_name, columns, spec, reason)
		values (1, 1, 'sessions-30d', 'sessions'::regclass, 'public.sessions', '[]', '{"expire": {"column": "last_seen", "after": "30 days"}, "where": "id <> 471147114711"}', 'OPS-1');
		insert into lapse.gate (policy_id, name, table_oid, version, state) values (1, 'sessions-30d', 'sessions'::regclass, 1, 'observing');
		insert into lapse.policy_state (policy_id, version, state, reason) values (1, 1, 'observing', 'OPS-1')`
	aHold = `insert into lapse.hold (id, table_oid, table_name, columns, digest, matter, reason)
		values (1, 'sessions'::regclass, 'public.sessions', '[]', sha256('x'), 'LIT-1', 'a claim');
		insert into lapse.hold_state (id, hold, state, reason) values (1, 1, 'requested', 'a claim');
		update lapse.gate set hold_version = 1`
)

// An owner who can do everything edits the rows that say what is in force, and deletes them.
func TestWhatASuperuserDoesToTheCatalogIsInTheLog(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		copied := r.settings.Slot + "_again"
		r.db.Exec(t, fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, r.settings.Slot, copied))
		var want []string
		for _, step := range []struct {
			sql  string
			want []string
		}{
			{
				aPolicy,
				[]string{"version insert OPS-1", "state insert observing"},
			},
			{
				aHold,
				[]string{"hold hold insert a claim", "hold state insert a claim"},
			},
			{`update lapse.gate set state = 'armed'`, []string{"gate update armed by hand"}},
			{asReplica + `update lapse.policy set reason = 'OPS-9', spec = '{"expire": {"column": "last_seen", "after": "1 day"}}'`, []string{"version update OPS-9"}},
			{asReplica + `delete from lapse.hold_state`, []string{"hold state delete a claim"}},
			{asReplica + `delete from lapse.hold`, []string{"hold hold delete a claim"}},
			{asReplica + `delete from lapse.policy_state`, []string{"state delete observing"}},
			{`insert into lapse.halt (halted, reason) values (true, 'OPS-2')`, []string{"halt insert OPS-2"}},
			{asReplica + `truncate lapse.halt`, []string{"halt truncate "}},
			{`delete from lapse.gate`, []string{"gate delete armed by hand"}},
		} {
			r.db.Exec(t, step.sql)
			want = append(want, step.want...)
		}
		r.once(t)
		got := r.inForce(t)
		if !slices.Equal(got, want) {
			t.Errorf("the log has\n%q, want\n%q", got, want)
		}
		if n := len(r.read(t, r.settings.User)); n > partitions {
			t.Errorf("%d events of rows of the catalog", n-partitions) // a fence is in each partition
		}
		first := dump(t, r.settings)
		r.db.Exec(t, fmt.Sprintf(`select pg_drop_replication_slot('%s')`, r.settings.Slot),
			fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, copied, r.settings.Slot))
		again := *r
		again.settings.Broker = kafkatest.Fake(t, kfake.NumBrokers(1)).ListenAddrs()[0]
		again.once(t)
		log := r.settings.Log + "/0"
		if second := dump(t, again.settings); !slices.EqualFunc(first[log], second[log], bytes.Equal) {
			t.Errorf("read again the log is\n%s\nand was\n%s", second[log], first[log])
		}
	})
}

// either is the row as it is, or as it was.
func either[R any](is, was *R) *R {
	if is != nil {
		return is
	}
	return was
}

// inForce is what the log has of what is in force, in a few words.
func (r *rig) inForce(t *testing.T) (got []string) {
	t.Helper()
	for _, record := range r.read(t, r.settings.Log) {
		entry, err := evidence.ParseLogRecord(record.Value)
		if err != nil {
			continue // a fence
		}
		if bytes.Contains(record.Value, []byte("471147114711")) {
			t.Errorf("a record has a condition: %s", record.Value)
		}
		if err := evidencetest.Schema(t, "log-"+string(entry.Kind)).Validate(evidencetest.ParseJSON(t, record.Value)); err != nil {
			t.Errorf("%s: %v", record.Value, err)
		}
		switch c := entry.Content.(type) {
		case *evidence.PolicyContent:
			text := c.Row + " " + c.Op + " "
			if row := either(c.Is, c.Was); row != nil && row.State != "" {
				text += string(row.State)
			} else if row != nil {
				text += row.Reason
			}
			if c.ByHand {
				text += " by hand"
			}
			got = append(got, text)
		case *evidence.HoldContent:
			got = append(got, "hold "+c.Row+" "+c.Op+" "+either(c.Is, c.Was).Reason)
		case *evidence.QuarantineContent:
			got = append(got, fmt.Sprintf("quarantine %s of %s %s: %d in, %d out, %d", c.Op, c.Policy, c.Table, c.Entered, c.Left, c.Rows))
		case *evidence.MarkerContent:
			got = append(got, "gap")
		}
	}
	return got
}

// Where the log may have missed how something came into force, it is said once more: when the log begins, and after a gap.
func TestWhatIsInForceIsSaidAgainAfterAGap(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		const entered = `insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
			select 1, 'sessions'::regclass, sha256(convert_to(n::text, 'UTF8')), array[n::text], '23503', now() from generate_series(%d, %d) n`
		fill := fmt.Sprintf(entered, 4711471147110, 4711471147112)
		r.db.Exec(t, aPolicy, aHold, fill, beatNow)
		again := []string{"version restated observing", "hold hold restated a claim", "quarantine restated of sessions-30d public.sessions: 0 in, 0 out, 3"}
		want := []string{
			"version insert OPS-1", "state insert observing", "hold hold insert a claim", "hold state insert a claim",
			"quarantine insert of sessions-30d public.sessions: 3 in, 0 out, 0", again[0], "hold relation insert ", again[1], again[2],
		}
		r.db.Exec(t, beatNow, `delete from lapse.quarantine where key[1] = '4711471147110'`, `insert into lapse.halt (halted, reason) values (true, 'OPS-2')`)
		want = append(want, "quarantine insert of sessions-30d public.sessions: 0 in, 1 out, 0", "halt insert OPS-2")
		// Somebody takes a table out, and what is done meanwhile is in no log.
		r.db.Exec(t, `alter publication lapse_catalog drop table lapse.gate`, `update lapse.gate set state = 'paused'`, beatNow,
			`alter publication lapse_catalog add table lapse.gate`, `select lapse.record_publications()`, beatNow)
		again[0], again[2] = "version restated paused", "quarantine restated of sessions-30d public.sessions: 0 in, 0 out, 2"
		want = slices.Concat(want, []string{"gap", "gap", again[0], "halt restated OPS-2", again[1], again[2]})
		r.db.Exec(t, beatNow)
		r.once(t)
		if got := r.inForce(t); !slices.Equal(got, want) {
			t.Errorf("the log has\n%q, want\n%q", got, want)
		}
	})
}

// A transaction that only makes a policy has two records, and no event.
func TestThePolicysRecordsAreThereOnceWhereverTheAuditorDies(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.db.Exec(t, beatNow)
		r.once(t)
		var want []string
		for n, before := range []string{secondPolicy, afterPolicy} {
			reason := fmt.Sprintf("OPS-%d", n+1)
			of := func(text string) string { return fmt.Sprintf(text, n+1) }
			r.db.Exec(t, strings.NewReplacer("1, 1, 'sessions-30d', 'sessions'::regclass", of("%d, 1, 'p%[1]d', %[1]d"),
				"(1, 'sessions-30d', 'sessions'::regclass", of("(%d, 'p%[1]d', %[1]d"), "values (1, 1, 'observing'", of("values (%d, 1, 'observing'"), "OPS-1", reason).Replace(aPolicy))
			want = append(want, "version insert "+reason, "state insert observing")
			r.dies(t, before)
			r.once(t)
			if got := r.inForce(t); !slices.Equal(got, want) {
				t.Errorf("it died before %s: the log has %q, want %q", before, got, want)
			}
			r.unbroken(t)
		}
	})
}

// Who has the executor's login may publish a snapshot of any size. No record of the log is longer for it than a record is, and the audit goes on.
func TestASnapshotOfManyTransactionsStopsNoAudit(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.db.Exec(t, `insert into lapse.snapshot (snapshot, step, policy_id, policy, version, seen, cutoff)
			select gen_random_uuid(), 'taken', 1, 'p', 1, ('1000000:1020000:' || string_agg(x::text, ',' order by x))::pg_snapshot, now() from generate_series(1000000, 1019999) x`)
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		r.deletes(t, w, want, 1)
		r.once(t)
		for _, record := range r.read(t, r.settings.Log) {
			if len(record.Value) > evidence.MaxRecord {
				t.Errorf("a record has %d bytes", len(record.Value))
			}
		}
		r.verify(t, want)
	})
}
