package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"lapse/schemas"
)

// leastMinor are the first releases without faults that lost a publication's deletes, or deleted rows that had moved.
var leastMinor = map[int]int{14: 18, 15: 13, 16: 9, 17: 5}

func (e *examination) checkVersion(context.Context) ([]Finding, error) {
	major, minor := e.version/10000, e.version%10000
	switch {
	case major < 14:
		return advise(Fail, "move to PostgreSQL 14 or later", "PostgreSQL %d is too old", major), nil
	case minor < leastMinor[major]:
		return advise(Warn, fmt.Sprintf("install PostgreSQL %d.%d or later, and restart the server", major, leastMinor[major]),
			"PostgreSQL %d.%d has known bugs in deletes of moved rows and in what publications send", major, minor), nil
	}
	return ok("PostgreSQL %d.%d", major, minor), nil
}

func (e *examination) checkPrimary(ctx context.Context) ([]Finding, error) {
	var standby bool
	if err := e.Conn.QueryRow(ctx, `select pg_is_in_recovery()`).Scan(&standby); err != nil {
		return nil, err
	}
	if standby {
		return advise(Fail, "connect to the primary", "this server is a standby: nothing can be deleted here"), nil
	}
	return ok("this server is a primary"), nil
}

func (e *examination) checkWALLevel(ctx context.Context) ([]Finding, error) {
	level, err := e.setting(ctx, "wal_level")
	if err != nil || level == "logical" {
		return ok("logical"), err
	}
	found := one(Fail, []string{"alter system set wal_level = 'logical'"}, "wal_level is %s, and deletes cannot be read from the log", level)
	found[0].Advice = "then restart the server"
	return found, nil
}

// checkFree counts replication slots and senders: a slot for this database, and a sender for its auditor.
func (e *examination) checkFree(ctx context.Context) ([]Finding, error) {
	var slots, used, senders, sending int
	var has bool
	err := e.Conn.QueryRow(ctx, `
		select current_setting('max_replication_slots')::int, (select count(*) from pg_replication_slots),
		       current_setting('max_wal_senders')::int, (select count(*) from pg_stat_replication),
		       exists (select from pg_replication_slots s where s.slot_name = $1)`, e.Slot).Scan(&slots, &used, &senders, &sending, &has)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, c := range []struct {
		name        string
		most, taken int
		ours        bool
	}{{"max_replication_slots", slots, used, has}, {"max_wal_senders", senders, sending, false}} {
		left := c.most - c.taken
		if left > 0 || c.ours {
			continue
		}
		f := one(Fail, []string{fmt.Sprintf("alter system set %s = %d", c.name, c.most+5)}, "%s is %d, and %d are in use: none is left for the audit", c.name, c.most, c.taken)
		f[0].Advice = "then restart the server"
		found = append(found, f...)
	}
	if len(found) == 0 {
		return ok("%d of %d slots and %d of %d senders are in use", used, slots, sending, senders), nil
	}
	return found, nil
}

func (e *examination) checkRetention(ctx context.Context) ([]Finding, error) {
	keep, err := e.setting(ctx, "max_slot_wal_keep_size")
	if err != nil {
		return nil, err
	}
	if keep == "-1" {
		f := one(Warn, []string{"alter system set max_slot_wal_keep_size = '50GB'", reload},
			"max_slot_wal_keep_size is -1: while Kafka or the auditor is away, PostgreSQL keeps its log until the disk is full")
		f[0].Advice = "set it to what the disk can spare: a slot that needs more is lost, and the evidence gets a gap"
		return f, nil
	}
	return ok("max_slot_wal_keep_size is %s", keep), nil
}

// checkSetting checks a setting that has one good value.
func (e *examination) checkSetting(ctx context.Context, name, wanted, harm string) ([]Finding, error) {
	fix, err := e.setForSessions(ctx, name, wanted)
	if err != nil {
		return nil, err
	}
	var system bool
	err = e.Conn.QueryRow(ctx, `
		select s.setting <> $2 and s.source in ('configuration file', 'command line', 'environment variable', 'global')
		  from pg_settings s where s.name = $1`, name, wanted).Scan(&system)
	if err != nil {
		return nil, err
	}
	if system {
		fix = append(fix, fmt.Sprintf("alter system set %s = %s", name, schemas.Literal(wanted)), reload)
	}
	if len(fix) > 0 {
		return one(Fail, fix, "%s is not %s for sessions of Lapse: %s", name, wanted, harm), nil
	}
	return ok("%s", wanted), nil
}

func (e *examination) checkReadOnly(ctx context.Context) ([]Finding, error) {
	found, err := e.checkSetting(ctx, "default_transaction_read_only", "off", "nothing can be deleted")
	if err == nil && found[0].Grade == Fail {
		found[0].Fix = append([]string{"set default_transaction_read_only = off"}, found[0].Fix...) // this session's, to run the others
	}
	return found, err
}

func (e *examination) checkTrackCounts(ctx context.Context) ([]Finding, error) {
	return e.checkSetting(ctx, "track_counts", "on", "batches cannot check how many rows were deleted, and are refused")
}

func (e *examination) checkReplicationRole(ctx context.Context) ([]Finding, error) {
	return e.checkSetting(ctx, "session_replication_role", "origin", "foreign keys are not checked, and batches are refused")
}

func (e *examination) checkIsolation(ctx context.Context) ([]Finding, error) {
	others, err := e.setForSessions(ctx, "default_transaction_isolation", "read committed")
	if err != nil || len(others) == 0 {
		return ok("read committed"), err
	}
	return ok("sessions start with another isolation level here; Lapse's sessions use read committed"), nil
}

func (e *examination) checkJIT(ctx context.Context) ([]Finding, error) {
	others, err := e.setForSessions(ctx, "jit", "off")
	if err != nil || len(others) == 0 {
		return ok("off in sessions of Lapse"), err
	}
	return ok("off in sessions of Lapse, whatever database and roles set"), nil
}

func (e *examination) checkSynchronous(ctx context.Context) ([]Finding, error) {
	names, err := e.setting(ctx, "synchronous_standby_names")
	if err != nil || !strings.Contains(names, "*") {
		return ok("%s", cmp.Or(names, "none")), err
	}
	standbys, err := e.list(ctx, `
		select distinct quote_ident(r.application_name) from pg_stat_replication r
		 where r.application_name <> '' and not exists (
		   select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')
		 order by 1`)
	if err != nil {
		return nil, err
	}
	return one(Warn, []string{"alter system set synchronous_standby_names = " + schemas.Literal(strings.Join(standbys, ", ")), reload},
		"synchronous_standby_names is %s, which takes the audit's stream for a standby: commits wait for Kafka", names), nil
}

// How far the clocks may differ. Beyond the second limit the executor refuses to work.
const (
	clockOff  = time.Second
	clockFail = 5 * time.Second
)

func (e *examination) checkClock(ctx context.Context) ([]Finding, error) {
	var server time.Time
	var zone string
	before := e.Now()
	if err := e.Conn.QueryRow(ctx, `
		select clock_timestamp(), coalesce((select s.boot_val from pg_settings s where s.name = 'TimeZone'), '')`).Scan(&server, &zone); err != nil {
		return nil, err
	}
	took := e.Now().Sub(before)
	skew := server.Sub(before.Add(took / 2)).Round(time.Millisecond)
	off := skew.Abs() - took/2 // the round trip explains smaller differences
	const advice = "set the clocks by NTP, on the server and on the machine of the executor"
	switch {
	case off > clockFail:
		return advise(Fail, advice, "the server's clock and this machine's differ by %v: the executor deletes nothing", skew), nil
	case off > clockOff:
		return advise(Warn, advice, "the server's clock and this machine's differ by %v", skew), nil
	}
	return ok("the server's clock and this machine's agree within %v; sessions of Lapse are in UTC", max(took, time.Millisecond).Round(time.Millisecond)), nil
}
