package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lapse/internal/config"
	"lapse/schemas"
)

func TestMonthsAreAddedAndNoKeyOfAMonthEverChanges(t *testing.T) {
	dir := t.TempDir()
	keys := keysIn(t, dir, nothing)
	if _, err := keys.Make(); err != nil {
		t.Fatal(err)
	}
	first, err := keys.Load(config.RowsKey)
	if err != nil {
		t.Fatal(err)
	}
	made, err := keys.EpochKeys()
	now := time.Now()
	if err != nil || len(made) != 14 || made[schemas.EpochOf(now)] == nil || made[schemas.EpochOf(now).Next()] == nil {
		t.Fatalf("%v, %v", made.Epochs(), err)
	}
	gone := schemas.EpochOf(now)
	if err := keys.DestroyMonth(gone); err != nil {
		t.Fatal(err)
	}
	added, err := keys.AddMonths(now, "2031-02")
	if err != nil || len(added) != 1 || added[0] != "2031-02" {
		t.Errorf("added %v, %v", added, err)
	}
	if added, err = keys.AddMonths(now.AddDate(1, 0, 1-now.Day())); err != nil || len(added) != 12 {
		t.Errorf("a year later it adds %v, %v", added, err)
	}
	after, err := keys.EpochKeys()
	if err != nil {
		t.Fatal(err)
	}
	if key, is := after[gone]; !is || key != nil {
		t.Error("a destroyed key is there again")
	}
	for epoch, key := range made {
		if epoch != gone && string(after[epoch]) != string(key) {
			t.Errorf("%s has another key than before", epoch)
		}
	}
	if err := keys.DestroyMonth(gone); !errors.Is(err, config.ErrNoEpoch) {
		t.Errorf("destroyed twice: %v", err)
	}
	if again, err := keys.Load(config.RowsKey); err != nil || string(again) != string(first) {
		t.Errorf("the database would not know the file again: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, "rows"))
	if entries, _ := os.ReadDir(dir); err != nil || info.Mode().Perm() != 0o600 || len(entries) != 4 {
		t.Errorf("%v %v: %v", info.Mode(), entries, err)
	}
}

func TestAFileOfMonthsThatIsWrongNamesTheLineAndNotTheKey(t *testing.T) {
	dir := t.TempDir()
	keys := keysIn(t, dir, nothing)
	const secret = "3333333333333333333333333333333333333333333333333333333333333333"
	for text, want := range map[string]string{
		secret:                                "",
		secret + "\n2026-11 " + secret + "\n": "",
		secret + "\n2026-13 " + secret:        "line 2: want a month",
		secret + "\n2026-11 destroyed\n2026-11 " + secret: "line 3: 2026-11 has a line before",
		secret + "\n2026-11 " + secret[1:]:                "line 2: want 64 hexadecimal digits",
		secret + "\n" + secret:                            "line 2: want a month",
	} {
		if err := os.WriteFile(filepath.Join(dir, "rows"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := keys.EpochKeys()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret[1:])) {
			t.Errorf("%q: %v", text, err)
		}
	}
	ofVariable := keysIn(t, dir, variables(map[string]string{"LAPSE_KEY_ROWS": secret + ",2026-11 " + secret + ",2026-12 destroyed"}))
	if all, err := ofVariable.EpochKeys(); err != nil || len(all) != 2 || all["2026-11"] == nil {
		t.Errorf("of a variable: %v, %v", all.Epochs(), err)
	}
	if _, err := ofVariable.AddMonths(time.Now()); err == nil || !strings.Contains(err.Error(), "LAPSE_KEY_ROWS is set") {
		t.Errorf("a variable is changed: %v", err)
	}
}
