package page

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
)

const hostile = `</script><script>alert(1)</script>"'><img src=x onerror=alert(2)>&amp;--><!--` + "\u2028{{.}}"

func sample() *Document {
	bars := &Bars{ID: "days", Title: hostile, Desc: hostile, Days: []Bar{
		{Label: "Oct 1", Parts: []int64{1200000, 5}, Text: hostile}, {Label: "Oct 2", Parts: []int64{0, 0}}, {Label: "Oct 3", Parts: []int64{3, 90}},
	}}
	return &Document{
		Title: "Retention report", Build: `v1<"+>`,
		Facts:    []Fact{{"Database", Cell{Text: hostile, From: "/database"}}},
		Verdicts: []Verdict{{Tone: Fail, Word: Cell{Text: "Fail"}, Subject: Cell{Text: hostile, From: "/policies/0/name"}, Sentence: hostile, Link: "p1"}},
		Unknown:  []string{hostile}, Verify: []Step{{hostile, hostile}},
		Sections: []Section{{ID: "p1", Title: hostile, Lead: hostile, Blocks: []Block{
			{Title: hostile, Text: hostile, Bars: bars, Keys: [2]string{hostile, hostile}},
			{Table: &Table{Name: "t", Caption: hostile, Fold: true, Columns: []Column{{Name: hostile}, {Name: "rows", Number: true}}, Rows: []Row{
				{Cells: []Cell{{Text: hostile}, {Text: "1,200,000", Raw: "1200000", From: "/n"}}},
				{Kind: "sum", Cells: []Cell{{Text: "=HYPERLINK(1)"}, {Text: "-7"}}},
			}}},
		}}},
	}
}

func TestHostileNamesAreInertInAPage(t *testing.T) {
	t.Parallel()
	canonical := []byte(`{"name":"\u003c/script\u003e\u003cscript\u003ealert(3)"}`)
	page, err := sample().HTML(canonical, "— sig a+b/c=\n")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(page, []byte("<script")); n != 3 {
		t.Errorf("the page has %d script elements, not the three that hold data", n)
	}
	for _, bad := range []string{"<img", "onerror=alert(2)>", "<!--"} {
		if i := bytes.Index(page, []byte(bad)); i >= 0 {
			t.Errorf("%s is in the page as markup: %s", bad, page[max(0, i-80):i+40])
		}
	}
	var names int
	err = eachValue(page, func(s shown) error {
		if s.text == hostile {
			names++
		}
		return nil
	})
	if err != nil || names != 2 {
		t.Errorf("the name is shown %d times as it is, not twice: %v", names, err)
	}
	e, err := Read(page)
	if err != nil {
		t.Fatal(err)
	}
	if e.Build != `v1<"+>` || !strings.Contains(string(e.JSON), "alert(3)") || e.Signature != "— sig a+b/c=\n" {
		t.Errorf("read back: %q, %q, %q", e.Build, e.JSON, e.Signature)
	}
	unsigned, err := sample().HTML(canonical, "")
	if err != nil || !bytes.Equal(unsigned, e.unsigned) {
		t.Errorf("the page without its signature is another: %v", err)
	}
}

func TestNoCellOfACSVIsAFormula(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"=1+1", "+1-1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "|x", "%x", "\u00a0=1", "=cmd|' /C calc'!A0"} {
		if got := harmless(text); !strings.HasPrefix(got, "'") {
			t.Errorf("%q stays as it is", text)
		}
	}
	for _, text := range []string{"", "-7", "12", "-1.5", "sessions-30d", "2026-10-01", "a=b"} {
		if got := harmless(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	files := sample().CSV()
	if len(files) != 3 || files[0].Name != "" || files[2].Name != "t" {
		t.Fatalf("%d files: %v", len(files), files)
	}
	lines, err := csv.NewReader(bytes.NewReader(files[2].Content)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if lines[1][1] != "1200000" || lines[2][0] != "'=HYPERLINK(1)" || lines[2][1] != "-7" {
		t.Errorf("%q", lines)
	}
}
