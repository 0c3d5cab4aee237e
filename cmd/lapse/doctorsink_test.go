package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"lapse/audit/folder"
	"lapse/internal/config"
	"lapse/internal/setup/doctor"
	"lapse/schemas"
)

// A folder with another database's log is no place for this one's, and the doctor says so before the auditor does.
func TestTheDoctorRefusesAFolderOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sink")
	value, err := os.ReadFile("../../schemas/golden/log-origin.json")
	if err != nil {
		t.Fatal(err)
	}
	var origin struct {
		System string `json:"system_identifier"`
		OID    uint32 `json:"database_oid"`
	}
	if err := json.Unmarshal(value, &origin); err != nil {
		t.Fatal(err)
	}
	system, err := strconv.ParseUint(origin.System, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	p, err := folder.Open(t.Context(), folder.Config{Dir: dir, Topics: []folder.Topic{{Name: "lapse.log", Partitions: 1, Forever: true}}})
	if err != nil {
		t.Fatal(err)
	}
	mark, ok := p.Append(schemas.Record{Topic: "lapse.log", Value: value, Time: time.Now(), Headers: []schemas.Header{{Key: schemas.HeaderOp, Value: []byte("origin")}}})
	for ok && p.Acked() < mark && p.Err() == nil {
		<-p.Progress()
	}
	if err := p.Close(context.WithoutCancel(t.Context())); err != nil || !ok {
		t.Fatal(ok, err)
	}
	s := &config.Settings{Folder: dir}
	s.Topics.Log = "lapse.log"
	for id, grade := range map[databaseID]doctor.Grade{{system, origin.OID}: doctor.OK, {system, origin.OID + 1}: doctor.Fail, {system + 1, origin.OID}: doctor.Fail} {
		f := examineFolder(t.Context(), s, id)[0]
		if f.Grade != grade || (grade == doctor.Fail) != strings.Contains(f.Text, "the log of another database") {
			t.Errorf("of %v the doctor says %s: %s", id, f.Grade, f.Text)
		}
	}
}
