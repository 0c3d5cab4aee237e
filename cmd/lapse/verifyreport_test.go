package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lapse/audit/report"
	"lapse/audit/report/page"
	"lapse/audit/tree"
	"lapse/internal/pgtest"
)

// published is a report in all its forms, with the log that it is of.
type published struct {
	m, elsewhere *machine // elsewhere has the files and the binary
	public       string
	period       []string
	run          string // that deleted
}

func newPublished(t *testing.T) *published {
	t.Helper()
	db := pgtest.New(t, pgtest.Newest(t))
	app := db.NewRole(t, "app")
	db.Exec(t, `create table public."<b>sessions" (id bigint primary key, last_seen timestamptz not null)`, `create index on public."<b>sessions" (last_seen, id)`,
		`insert into public."<b>sessions" select n, now() - n * interval '1 day' from generate_series(1, 60) n`, `grant select, delete on public."<b>sessions" to `+app)
	m := newMachine(t, fmt.Sprintf("database: { owner: %q, executor: %q, auditor: %q }\nkeys: keys\nsink: dir:sink\n", db.URL, db.As("lapse_executor"), db.As("lapse_auditor")))
	m.lapse("init", "--keys", "keys")
	m.lapse("apply", "--yes", "--arm", "-f", m.write("policies.yaml", `
policies:
  - name: sessions
    table: public."<b>sessions"
    expire: { column: last_seen, after: 30 days }
    pace: unlimited
    state: armed
`))
	m.lapse("audit", "--once")
	m.lapse("audit", "--once")
	now := func() string {
		var at time.Time
		if err := db.Connect(t).QueryRow(t.Context(), `select clock_timestamp()`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at.UTC().Format(time.RFC3339Nano)
	}
	from := now()
	m.lapse("audit", "--once")
	m.lapse("run", "--once")
	db.Exec(t, `set role `+app+`; delete from public."<b>sessions" where id < 8`)
	m.lapse("audit", "--once")
	to := now()
	m.lapse("audit", "--once")
	m.lapse("events", "--export", "out")
	p := &published{m: m, period: []string{"--from", from, "--to", to}}
	if err := db.Connect(t).QueryRow(t.Context(), `select b.run::text from lapse.batch b limit 1`).Scan(&p.run); err != nil {
		t.Fatal(err)
	}
	p.elsewhere = &machine{t: t, bin: m.bin, dir: t.TempDir(), env: []string{"HOME=" + t.TempDir()}}
	p.public = *manifestOf(t, filepath.Join(m.dir, "out")).Tree.PublicKey
	return p
}

// report writes a file, and returns what is in it.
func (p *published) report(name string, args ...string) []byte {
	p.m.t.Helper()
	p.m.lapse(append(append([]string{"report", "-o", name}, p.period...), args...)...)
	text, err := os.ReadFile(filepath.Join(p.m.dir, name))
	if err != nil {
		p.m.t.Fatal(err)
	}
	return text
}

func TestAReportVerifiesAndFailsAfterOneEditedDigit(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	m := p.m
	p.inTables(t)
	file := p.report("report.html")
	if again := p.report("again.html"); !bytes.Equal(file, again) {
		t.Error("made again the page has other bytes")
	}
	embedded, err := page.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if written := p.report("report.json"); !bytes.Equal(written, embedded.JSON) {
		t.Error("the page's JSON is not the report's")
	}
	if exported := p.report("exported.html", "--dir", "out"); !bytes.Equal(exported, file) {
		t.Error("from the export the page has other bytes")
	}
	out := filepath.Join(m.dir, "out")
	says(t, m.lapse("verify", "report.html"), "verifies: report of the log", "byte for byte", "signed      report and page")
	says(t, m.lapse("verify", "report.json"), "verifies: report", "log         says the same")
	bare := bytes.ReplaceAll(file, []byte(embedded.Signature), nil)
	unsigned := p.elsewhere.write("unsigned.html", string(bare))
	signed := p.elsewhere.write("signed.html", string(file))
	says(t, p.elsewhere.lapse("verify", unsigned, "--dir", out, "--public-key", p.public), "log         says the same", "it is not signed")
	says(t, p.elsewhere.lapse("verify", signed, "--public-key", p.public), "signed      report and page", "there is no log here")
	says(t, p.elsewhere.exits(exitInvalid, "verify", signed), "agrees with itself only")
	says(t, p.elsewhere.exits(exitInvalid, "verify", unsigned, "--public-key", p.public), "agrees with itself only", "it is not signed")

	certificate := p.report("certificate.html", "--certificate", "--policy", "sessions")
	says(t, m.lapse("verify", "certificate.html"), "log         says the same", "signed      report and page", "byte for byte")
	says(t, string(p.report("run.html", "--certificate", "--policy", "sessions", "--run", p.run)), p.run, `data-json="/run/by_row">31<`)
	says(t, m.lapse("verify", "run.html"), "log         says the same", "signed      report and page", "byte for byte")
	m.write("another.html", strings.Replace(string(certificate), "Certificate of disposition", "Certificate of destruction", 1))
	m.exits(exitPerson, "verify", "another.html")
	m.exits(exitInvalid, append([]string{"report", "-o", "c.html", "--certificate", "--matter", "LIT-1"}, p.period...)...)

	// One digit: in a table, in the JSON, in both alike.
	r := parsed(t, embedded.JSON)
	rows := r.Policies[0].Deleted.ByRow
	inTable := bytes.ReplaceAll(bare, fmt.Appendf(nil, `data-json="/policies/0/deleted/by_row">%d<`, rows), fmt.Appendf(nil, `data-json="/policies/0/deleted/by_row">%d<`, rows+1))
	inJSON := bytes.ReplaceAll(bare, fmt.Appendf(nil, `"by_row":%d,`, rows), fmt.Appendf(nil, `"by_row":%d,`, rows+1))
	if bytes.Equal(inTable, bare) || bytes.Equal(inJSON, bare) {
		t.Fatal("there is no such number in the page")
	}
	log := []string{"--dir", out, "--public-key", p.public}
	for what, edited := range map[string][]byte{"table": inTable, "JSON": inJSON} {
		name := p.elsewhere.write("edited.html", string(edited))
		says(t, p.elsewhere.exits(exitPerson, "verify", name), "does not verify: ")
		says(t, p.elsewhere.exits(exitPerson, append([]string{"verify", name}, log...)...), "does not verify: ")
		_ = what
	}
	r.Policies[0].Deleted.ByRow++
	canonical, err := r.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	inBoth, err := page.New(r, embedded.Build, nil).HTML(canonical, embedded.Signature)
	if err != nil {
		t.Fatal(err)
	}
	name := p.elsewhere.write("both.html", string(inBoth))
	says(t, p.elsewhere.exits(exitInvalid, "verify", name), "agrees with itself only")
	says(t, p.elsewhere.exits(exitPerson, "verify", name, "--public-key", p.public), "its signature is over another report")
	unsignedBoth, err := page.New(r, embedded.Build, nil).HTML(canonical, "")
	if err != nil {
		t.Fatal(err)
	}
	name = p.elsewhere.write("both.html", string(unsignedBoth))
	says(t, p.elsewhere.exits(exitPerson, append([]string{"verify", name}, log...)...), fmt.Sprintf("it is not what the log says: at /policies/0/deleted/by_row the log has %d, and the report %d", rows, rows+1))
	name = m.write("both.json", string(canonical))
	says(t, m.exits(exitPerson, "verify", name), "it is not what the log says")

	// Of another build the values are compared; its words are nobody's.
	other, err := page.New(r, "of last year", nil).HTML(canonical, "")
	if err != nil {
		t.Fatal(err)
	}
	other = bytes.ReplaceAll(other, canonical, embedded.JSON)
	name = p.elsewhere.write("other.html", string(other))
	says(t, p.elsewhere.exits(exitPerson, append([]string{"verify", name}, log...)...), "it shows")
	other, err = page.New(parsed(t, embedded.JSON), "of last year", nil).HTML(embedded.JSON, "")
	if err != nil {
		t.Fatal(err)
	}
	other = bytes.ReplaceAll(other, []byte("What is not known"), []byte("What is known"))
	name = p.elsewhere.write("other.html", string(other))
	says(t, p.elsewhere.exits(exitInvalid, append([]string{"verify", name}, log...)...), "nobody has compared its words, and whether it shows each value")
}

func parsed(t *testing.T, canonical []byte) *report.Report {
	t.Helper()
	r, err := report.Parse(canonical)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// inTables wants a table in each file.
func (p *published) inTables(t *testing.T) {
	t.Helper()
	if text := string(p.report("report.csv")); !strings.HasPrefix(text, "policy,verdict,sentence\nsessions,") {
		t.Errorf("the main table is %s", text)
	}
	for _, name := range []string{"about", "zero", "rollforward", "tables"} {
		if _, err := os.Stat(filepath.Join(p.m.dir, "report-"+name+".csv")); err != nil {
			t.Error(err)
		}
	}
	var envelope struct {
		Result struct{ Files []string } `json:"result"`
	}
	said := p.m.lapse(append([]string{"report", "-o", "report.csv", "--json"}, p.period...)...)
	if err := json.Unmarshal([]byte(said), &envelope); err != nil || len(envelope.Result.Files) < 6 || envelope.Result.Files[0] != "report.csv" {
		t.Errorf("it says %v, %v", envelope.Result.Files, err)
	}
}

// Without a database: the pages are those of the example.
func TestARedactedReportVerifiesByItsSignature(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../../audit/report/testdata/example.json")
	if err != nil {
		t.Fatal(err)
	}
	redacted, err := parsed(t, example).Redact()
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := redacted.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	key, err := tree.NewKey(bytes.Repeat([]byte{7}, 32), redacted.Log.Name)
	if err != nil {
		t.Fatal(err)
	}
	file, err := page.NewRedacted(redacted, "some build").Signed(canonical, key)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, "")
	m.write("redacted.html", string(file))
	says(t, m.lapse("verify", "redacted.html", "--public-key", key.Public()), "verifies: redacted report", "signed      report and page", "there is no log here")
	says(t, m.exits(exitInvalid, "verify", "redacted.html"), "agrees with itself only")
	m.write("redacted.html", strings.Replace(string(file), ">&lt;5</span>", ">6</span>", 1))
	says(t, m.exits(exitPerson, "verify", "redacted.html", "--public-key", key.Public()), "it shows")
	m.write("redacted.json", string(canonical))
	says(t, m.exits(exitInvalid, "verify", "redacted.json"), "redacted report", "only a page has a signature")
	for _, args := range [][]string{
		{"--redacted", "--last", "30d"},
		{"--redacted", "--month", "2026-10", "--policy", "x"},
		{"--redacted", "--month", "2026-10", "--certificate", "--policy", "x"},
		{"--certificate", "--month", "2026-10"},
		{"--matter", "x", "--month", "2026-10"},
		{"--run", "0198f1d0-0000-7000-8000-000000000002", "--month", "2026-10"},
		{"--run", "last", "--certificate", "--policy", "x", "--month", "2026-10"},
		{"--certificate", "--policy", "x", "--month", "2026-10", "-o", "x.csv"},
		{"--month", "2026-10", "-o", "x.pdf"},
	} {
		says(t, m.exits(exitInvalid, append([]string{"report"}, args...)...), "see lapse report --help")
	}
	for name, text := range map[string]string{"empty.html": "", "no.html": "<html></html>", "cut.html": string(file[:len(file)/2]), "new.json": `{"kind":"report","schema":99}`} {
		m.write(name, text)
		if said := m.exits(map[bool]int{true: exitInvalid, false: exitPerson}[name == "empty.html" || name == "new.json"], "verify", name, "--public-key", key.Public()); strings.Contains(said, "verifies:") {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// The owner of a log who wants the page to look better edits what no value is compared with: with a signature that fails, and without one lapse
// verifies nothing.
func TestAPageThatIsMadeToLookBetterDoesNotVerify(t *testing.T) {
	t.Parallel()
	canonical, err := os.ReadFile("../../audit/report/testdata/example.json")
	if err != nil {
		t.Fatal(err)
	}
	r := parsed(t, canonical)
	key, err := tree.NewKey(bytes.Repeat([]byte{7}, 32), r.Log.Name)
	if err != nil {
		t.Fatal(err)
	}
	file, err := page.New(r, "some build", nil).Signed(canonical, key)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, "")
	m.write("report.html", string(file))
	says(t, m.lapse("verify", "report.html", "--public-key", key.Public()), "verifies: report")
	for name, edit := range map[string][2]string{
		"a title":      {"<title>Retention report of", "<title>Verified: retention report of"},
		"hidden lines": {"</style>", ".fail { display: none }</style>"},
		"a row less":   {`<li class="fail">`, `<li class="pass">`},
		"another word": {"In short", "Verified"},
		"a form":       {`<meta name="form" content="report" />`, `<meta name="form" content="certificate" />`},
		"a script":     {"</main>", "<script>document.title = 'verified'</script></main>"},
	} {
		forged := strings.Replace(string(file), edit[0], edit[1], 1)
		if forged == string(file) {
			t.Errorf("%s: there is nothing to replace", name)
		}
		m.write("forged.html", forged)
		says(t, m.exits(exitPerson, "verify", "forged.html", "--public-key", key.Public()), "does not verify: ")
		if code, said := m.answers("verify", "forged.html"); code == 0 || strings.HasPrefix(said, "verifies") {
			t.Errorf("%s: without a key and a log it exits with %d: %s", name, code, said)
		}
	}
}
