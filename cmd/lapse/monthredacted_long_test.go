//go:build long

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lapse/audit/report"
	"lapse/audit/report/page"
	"lapse/internal/reporttest"
)

// redacted makes the edition for others of October in each form, and attacks it: as somebody who has all files and knows each rule.
func (o *october) redacted(t *testing.T, whole *report.Report, text []byte) {
	dir := t.TempDir()
	files := map[string][]byte{}
	write := func(name string) {
		for _, form := range []string{".json", ".html", ".csv"} {
			if code, out := o.m.answers("report", "--month", "2026-10", "--redacted", "-o", filepath.Join(dir, name+form)); code != 0 && code != exitPerson {
				t.Fatalf("lapse report: exit code %d\n%s", code, out)
			}
		}
	}
	write("first")
	names, err := filepath.Glob(filepath.Join(dir, "first*"))
	if err != nil || len(names) < 5 {
		t.Fatalf("the files are %q", names)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(filepath.Base(name), "first")] = content
	}
	edition, err := report.ParseRedacted(files[".json"])
	if err != nil {
		t.Fatal(err)
	}

	// Nobody finds a number from 1 to 4, in what is shown and in what follows from it.
	small := 0
	for i := range edition.Policies {
		small += reporttest.Attack(t, &edition.Policies[i], reportedByID(t, whole, edition.Policies[i].Code))
	}
	if small < 20 {
		t.Errorf("there were only %d numbers to find", small)
	}
	allowed := regexp.MustCompile(`^/schema$|^/gaps$|^/restores$|^/log/(opening|closing)/records$|/at_least$|/at_most$|/fell_due_less_refreshed/value$`)
	for path, n := range numbers(t, files[".json"]) {
		if n > 0 && n < 5 && !allowed.MatchString(path) {
			t.Errorf("%s is %d", path, n)
		}
	}
	shownBare := regexp.MustCompile(`<t[dh][^>]*>(<[^>]*>)*([1-4])(<[^>]*>)*</t[dh]>`)
	if found := shownBare.FindAll(files[".html"], -1); len(found) > 0 {
		t.Errorf("the page shows %q", found)
	}
	for name, content := range files {
		if !strings.HasSuffix(name, ".csv") {
			continue
		}
		rows, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			for i, cell := range row {
				if n, err := strconv.Atoi(cell); err == nil && n > 0 && n < 5 && rows[0][i] != "gaps" && rows[0][i] != "restores" && !strings.Contains(row[0], "aps") && !strings.Contains(row[0], "estore") {
					t.Errorf("%s says %q", name, row)
				}
			}
		}
	}

	// Nothing of the whole report is in it: no name, no time, no place. What it may say is what it has of its own.
	mine := stringsIn(t, files[".json"])
	for text := range stringsIn(t, text) {
		if mine[text] || len(text) < 4 || strings.Contains(edition.Log.Name, text) || slices.Contains(wordsOfReports, text) {
			continue
		}
		for name, content := range files {
			if bytes.Contains(content, []byte(text)) {
				t.Errorf("%s has %q of the whole report", name, text)
			}
		}
	}
	for _, secret := range []string{"sessions", "carts", "mails", "readings", "notes", "web team", "LIT-1", "Miller", "nightly", "migration", "lapse_executor", "1861", o.db.Name} {
		for name, content := range files {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("%s has %q", name, secret)
			}
		}
	}
	embedded, err := page.Read(files[".html"])
	if err != nil || !bytes.Equal(embedded.JSON, files[".json"]) {
		t.Errorf("the page's JSON is another one: %v", err)
	}

	// A day later it is the same edition; and no other one can be had, which one could subtract.
	o.m.lapse("audit", "--once")
	write("later")
	for _, form := range []string{".json", ".html", ".csv"} {
		if again, err := os.ReadFile(filepath.Join(dir, "later"+form)); err != nil || !bytes.Equal(again, files[form]) {
			t.Errorf("made later the edition has other bytes: %v", err)
		}
	}
	for _, args := range [][]string{
		{"--from", "2026-10-01", "--to", "2026-11-02"},
		{"--from", "2026-10-01", "--to", "2026-11-01"},
		{"--last", "31d"},
		{"--month", "2026-10", "--policy", "sessions"},
		{"--month", "2026-10", "--certificate", "--policy", "sessions"},
		{"--month", "2026-10", "--certificate", "--matter", "LIT-1"},
	} {
		o.m.exits(exitInvalid, append([]string{"report", "--redacted", "-o", filepath.Join(dir, "never.html")}, args...)...)
	}
	says(t, o.m.lapse("verify", filepath.Join(dir, "first.html")), "log         says the same")
}

// wordsOfReports are in every report, redacted or not.
var wordsOfReports = []string{"report", "armed", "paused", "delete", "soft", "drop_partition", "insert", "claimed", "released", "releasing", "effective", "requested", "ends", "begins", "restated"}

// stringsIn are the texts of a JSON.
func stringsIn(t *testing.T, text []byte) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all[v] = true
		case map[string]any:
			for _, member := range v {
				walk(member)
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		}
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	walk(v)
	return all
}

// reportedByID is the policy that a redacted report names by its number.
func reportedByID(t *testing.T, r *report.Report, code string) *report.Policy {
	t.Helper()
	for i := range r.Policies {
		if code == "policy "+strconv.FormatInt(r.Policies[i].ID, 10) {
			return &r.Policies[i]
		}
	}
	t.Fatalf("the report has no %s", code)
	return nil
}
