package servers_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lapse/internal/servers"
)

func TestAFolderIsCompleteOnlyWithItsStampItsReleaseAndAllItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/postgres")
	write("bin/initdb")
	if servers.Complete(dir, "PostgreSQL 18.6") {
		t.Error("complete without a stamp")
	}
	if err := servers.Stamp(dir, "PostgreSQL 18.6"); err != nil {
		t.Fatal(err)
	}
	if !servers.Complete(dir, "PostgreSQL 18.6") {
		t.Error("not complete with its stamp")
	}
	if servers.Complete(dir, "PostgreSQL 18.7") {
		t.Error("another release is complete")
	}
	if err := os.Remove(filepath.Join(dir, "bin/initdb")); err != nil {
		t.Fatal(err)
	}
	if servers.Complete(dir, "PostgreSQL 18.6") {
		t.Error("complete without one of its files")
	}
}

func TestTheVariableNarrowsTheMajorVersions(t *testing.T) {
	t.Parallel()
	for value, want := range map[string][]int{
		"": {14, 15, 16, 17, 18}, " ": {14, 15, 16, 17, 18}, "15,18": {15, 18}, "18": {18}, "15, 16": {15, 16},
		"13": nil, "19": nil, "new": nil, "15,": nil,
	} {
		got, err := servers.WantedMajors(value)
		if !reflect.DeepEqual(got, want) || (err == nil) != (want != nil) {
			t.Errorf("LAPSE_PG=%q gives %v, %v; want %v", value, got, err, want)
		}
	}
}

func TestTheVersionsAreThoseOfThePOMs(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"kafka-pom.xml":    "<kafka.version>" + servers.KafkaVersion + "</kafka.version>",
		"connect-pom.xml":  "<kafka.version>" + servers.KafkaVersion + "</kafka.version>",
		"debezium-pom.xml": "<debezium.version>" + servers.DebeziumVersion + "</debezium.version>",
	} {
		pom, err := os.ReadFile(filepath.Join("fetch", file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(pom), want) {
			t.Errorf("fetch/%s has no %s", file, want)
		}
	}
}

func TestTheFolderIsBesideGoMod(t *testing.T) {
	t.Setenv("LAPSE_SERVERS", "")
	dir, err := servers.Dir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "go.mod")); err != nil || filepath.Base(dir) != ".servers" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("LAPSE_SERVERS", "/elsewhere")
	if dir, err := servers.Dir(); dir != "/elsewhere" || err != nil {
		t.Errorf("%s, %v with LAPSE_SERVERS", dir, err)
	}
}
