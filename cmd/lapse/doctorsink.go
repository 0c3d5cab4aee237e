package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit/evidence"
	"lapse/audit/folder"
	"lapse/internal/config"
	"lapse/internal/setup/doctor"
	"lapse/schemas"
)

// littleRoom is the free space that the folder's disk should have: a day of a busy log.
const littleRoom = 1 << 30

// examineFolder checks whether Lapse may use the topics' folder, and whether the disk has room. Without the folder Lapse deletes
// nothing and loses nothing.
func examineFolder(ctx context.Context, s *config.Settings, id databaseID) []doctor.Finding {
	f := doctor.Finding{Check: "sink", Grade: doctor.Fail}
	warning, err := folder.Check(s.Folder)
	var place *folder.PlaceError
	switch {
	case errors.As(err, &place):
		f.Text, f.Advice = "the topics cannot be kept in "+place.Path, place.Why
		return []doctor.Finding{f}
	case err != nil:
		f.Text = err.Error()
		return []doctor.Finding{f}
	}
	if other := otherLogIn(ctx, s, id); other != "" {
		f.Text = s.Folder + " has " + other
		f.Advice = "name another folder (sink: in lapse.yaml): the auditor of this database refuses this one"
		return []doctor.Finding{f}
	}
	f.Grade, f.Text = doctor.OK, s.Folder+" keeps the topics"
	if free, size, err := folder.Free(s.Folder); err == nil {
		f.Text += fmt.Sprintf("; %s of %s are free", bytesText(free), bytesText(size))
		if free < littleRoom {
			f.Grade, f.Advice = doctor.Warn, "a full disk stops the audit, and with it deletion: give it room"
		}
	}
	if warning != "" {
		f.Grade, f.Advice = doctor.Warn, warning
	}
	kept := "until somebody deletes them"
	if s.Topics.Retention > 0 {
		kept = fmt.Sprintf("for %d hours (topics.retention)", s.Topics.Retention/time.Hour)
	}
	return []doctor.Finding{f, {Check: "events", Grade: doctor.OK, Text: fmt.Sprintf("%s keeps events %s; the log stays", s.Folder, kept)}}
}

// databaseID identifies the database of a log.
type databaseID struct {
	system uint64
	oid    uint32
}

func identityOf(ctx context.Context, conn *pgx.Conn) (id databaseID, err error) {
	var system int64
	err = conn.QueryRow(ctx, `select system_identifier, (select oid from pg_database where datname = current_database()) from pg_control_system()`).Scan(&system, &id.oid)
	id.system = uint64(system)
	return id, err
}

// otherLogIn names the database of the folder's log if it is another one. The auditor reports a log that cannot be read.
func otherLogIn(ctx context.Context, s *config.Settings, id databaseID) (whose string) {
	client := folder.NewClient(s.Folder)
	defer client.Close()
	_ = client.Backward(ctx, s.Topics.Log, 0, -1, func(rec *schemas.Record, _ int64) (bool, error) {
		record := evidence.LogRecordIn(rec)
		if record != nil && (record.SystemIdentifier != id.system || record.DatabaseOID != id.oid) {
			whose = fmt.Sprintf("the log of another database: %d of system %d; this one is %d of %d", record.DatabaseOID,
				record.SystemIdentifier, id.oid, id.system)
		}
		return record == nil, nil
	})
	return whose
}

// bytesText formats a number of bytes.
func bytesText(n uint64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d GB", n>>30)
}
