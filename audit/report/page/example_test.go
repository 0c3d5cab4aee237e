package page

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

func example(t *testing.T) (*report.Report, []byte) {
	t.Helper()
	canonical, err := os.ReadFile("../testdata/example.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := report.Parse(canonical)
	if err != nil {
		t.Fatal(err)
	}
	return r, canonical
}

func TestEveryValueOfThePageIsThatOfItsJSON(t *testing.T) {
	t.Parallel()
	r, canonical := example(t)
	page, err := New(r, "test", nil).HTML(canonical, "")
	if err != nil {
		t.Fatal(err)
	}
	again, err := New(r, "test", nil).HTML(canonical, "")
	if err != nil || !bytes.Equal(page, again) {
		t.Errorf("a second page is another one: %v", err)
	}
	if to := os.Getenv("LAPSE_PAGE"); to != "" { // for somebody who wants to see it
		if err := os.WriteFile(to, page, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := CompareValues(page, canonical); err != nil {
		t.Error(err)
	}
	for _, is := range []string{"src=", "href=\"http", "url(h", "@import", "javascript:", "onload"} {
		if bytes.Contains(page, []byte(is)) {
			t.Errorf("the page has %q: it could fetch or run something", is)
		}
	}
	e, err := Read(page)
	if err != nil || !bytes.Equal(e.JSON, canonical) {
		t.Errorf("the JSON in the page is not the canonical one: %v", err)
	}
}

func TestADigitThatIsEditedInAPageOfAnotherBuildIsFound(t *testing.T) {
	t.Parallel()
	r, canonical := example(t)
	page, err := New(r, "another build", nil).HTML(canonical, "")
	if err != nil {
		t.Fatal(err)
	}
	values := regexp.MustCompile(`<span data-json="[^"]*">([^<]*[0-9])[^<]*</span>`).FindAllSubmatchIndex(page, -1)
	if len(values) < 100 {
		t.Fatalf("the page shows %d values", len(values))
	}
	for i := 0; i < len(values); i += 7 {
		at := values[i][3] - 1
		edited := bytes.Clone(page)
		edited[at] = '0' + (edited[at]-'0'+1)%10
		if CompareValues(edited, canonical) == nil {
			t.Errorf("nobody finds %s in place of %s", edited[values[i][0]:values[i][1]], page[values[i][0]:values[i][1]])
		}
	}
	added := strings.Replace(string(page), `</tbody>`, `<tr><td class="n">7</td></tr></tbody>`, 1)
	if CompareValues([]byte(added), canonical) == nil {
		t.Error("nobody finds a number that was added to a table")
	}
	for _, grade := range []string{"Fail", "Not assessed"} {
		edited := strings.ReplaceAll(string(page), `>`+grade+`</span>`, `>Pass</span>`)
		if CompareValues([]byte(edited), canonical) == nil {
			t.Errorf("nobody finds that %s was edited", grade)
		}
	}
}

func TestARedactedPageNamesNobody(t *testing.T) {
	t.Parallel()
	r, _ := example(t)
	redacted, err := r.Redact()
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := redacted.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	d := NewRedacted(redacted, "test")
	page, err := d.HTML(canonical, "")
	if err != nil {
		t.Fatal(err)
	}
	if to := os.Getenv("LAPSE_PAGE"); to != "" {
		if err := os.WriteFile(to+".redacted.html", page, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := CompareValues(page, canonical); err != nil {
		t.Error(err)
	}
	files := d.CSV()
	for i := range r.Policies {
		for _, name := range []string{r.Policies[i].Name, r.Policies[i].Table, r.Log.Database + "<", "alice", "OPS-"} {
			for _, text := range append(files, File{"html", page}) {
				if bytes.Contains(text.Content, []byte(name)) {
					t.Errorf("%s is in %s", name, text.Name)
				}
			}
		}
	}
}

func TestACertificateIsOfOnePolicyOrMatter(t *testing.T) {
	t.Parallel()
	r, canonical := example(t)
	if _, err := NewCertificate(r, "test", ""); err == nil {
		t.Error("one of four policies was made")
	}
	if _, err := NewCertificate(r, "test", "no such matter"); err == nil {
		t.Error("one of a matter that nobody has was made")
	}
	wanted := func(matter, title string) {
		d, err := NewCertificate(r, "test", matter)
		if err != nil {
			t.Fatal(err)
		}
		page, err := d.HTML(canonical, "")
		if err != nil {
			t.Fatal(err)
		}
		if to := os.Getenv("LAPSE_PAGE"); to != "" {
			if err := os.WriteFile(to+matter+".certificate.html", page, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := CompareValues(page, canonical); err != nil || !bytes.Contains(page, []byte("<h1>"+title)) {
			t.Errorf("%s: %v", title, err)
		}
		e, err := Read(page)
		if err != nil {
			t.Fatal(err)
		}
		again, err := e.Again(r)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := again.HTML(canonical, ""); err != nil || !bytes.Equal(second, page) {
			t.Errorf("%s: written again of what it says it is another page: %v", title, err)
		}
	}
	wanted(r.Holds.Items[0].Matter, "Certificate of preservation")
	r.Policies = r.Policies[2:3]
	var err error
	if canonical, err = r.Canonical(); err != nil {
		t.Fatal(err)
	}
	wanted("", "Certificate of disposition")
}

func TestAYearIsShownByMonthsAndKeptByDays(t *testing.T) {
	t.Parallel()
	r, _ := example(t)
	r.Period.From = "2025-10-15T00:00:00Z"
	for i := range r.Policies {
		r.Policies[i].Deleted.Days, r.Tables[i].Days = nil, nil
		for at := r.Period.From.Time(); at.Before(r.Period.To.Time()); at = at.AddDate(0, 0, 1) {
			name := at.Format("2006-01-02")
			r.Policies[i].Deleted.Days = append(r.Policies[i].Deleted.Days, report.Day{Day: name, ByRow: 1000 + int64(at.Day()), Soft: 1})
			r.Tables[i].Days = append(r.Tables[i].Days, report.TableDay{Day: name, System: 3})
		}
	}
	canonical, err := r.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	d := New(r, "test", nil)
	page, err := d.HTML(canonical, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := CompareValues(page, canonical); err != nil {
		t.Error(err)
	}
	february := ">" + plaintext.Number(28*1000+28*29/2) + "<"
	if n := bytes.Count(page, []byte(february)); n != len(r.Policies) {
		t.Errorf("%s is there %d times", february, n)
	}
	edited := bytes.Replace(page, []byte(february), []byte(">"+plaintext.Number(28*1000+28*29/2+1)+"<"), 1)
	if CompareValues(edited, canonical) == nil {
		t.Error("nobody finds a month that was edited")
	}
	for _, f := range d.CSV() {
		if f.Name == "policy-day" && bytes.Count(f.Content, []byte("\n")) != 1+len(r.Policies)*len(r.Policies[0].Deleted.Days) {
			t.Errorf("the CSV has %d lines", bytes.Count(f.Content, []byte("\n")))
		}
	}
}

func TestEveryLineThatMustBeZeroHasItsWords(t *testing.T) {
	t.Parallel()
	for _, about := range report.ZeroLines {
		if asked[about] == "" || wrong[about] == "" && about != report.Gaps {
			t.Errorf("%s has no words for a sentence", about)
		}
	}
}
