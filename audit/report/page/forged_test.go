package page

import (
	"bytes"
	"strings"
	"testing"
)

// What somebody could do to a page of another build, whose words cannot be written again, so that it looks better than its JSON.
func TestAForgedPageOfAnotherBuildIsRefused(t *testing.T) {
	t.Parallel()
	r, canonical := example(t)
	page, err := New(r, "of last year", nil).HTML(canonical, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string][2]string{
		"a script":               {"</main>", "<script>document.querySelectorAll('.fail').forEach((e) => e.remove())</script></main>"},
		"a script in capitals":   {"</main>", "<SCRIPT>1</SCRIPT></main>"},
		"a handler":              {"<main>", `<main onclick="this.remove()">`},
		"a picture":              {"<main>", `<main><img src="https://example.com/verified.png" alt="verified" />`},
		"a style sheet":          {"</head>", `<link rel="stylesheet" href="https://example.com/a.css" /></head>`},
		"an inline style":        {`<li class="fail"`, `<li style="display:none" class="fail"`},
		"a hidden part":          {`<li class="fail"`, `<li hidden="" class="fail"`},
		"a link elsewhere":       {`<a href="#zero">`, `<a href="https://example.com/">`},
		"a reload":               {"</head>", `<meta http-equiv="refresh" content="0;url=https://example.com/" /></head>`},
		"a comment":              {"<main>", "<main><!-- "},
		"what a browser skips":   {`data-json="/policies/0/name">`, `data-json="/policies/0/name"><![CDATA[`},
		"a second JSON":          {"<footer>", jsonBegins + "{}</script><footer>"},
		"a second JSON by id":    {"<footer>", `<script id="report" type="application/json">{}</script><footer>`},
		"markup that is not XML": {"<main>", "<main><br>"},
		"an instruction":         {"<main>", `<main><?x ><td class="n">0</td><noembed>?>`},
		"a directive":            {"<main>", `<main><!x "> <td class="n">0</td>">`},
		"a second doctype":       {"<main>", "<main><!doctype html>"},
		"a cell in capitals":     {"<tbody>", `<tbody><tr><TD class="n">0</TD></tr>`},
		"a class with a space":   {"<tbody>", `<tbody><tr><td class=" n">0</td></tr>`},
		"text of its own":        {"<main>", "<main><plaintext></plaintext>"},
		"a namespace":            {"<main>", `<main><x:img data-json="" />`},
		"a background":           {"<main>", `<main background="https://example.com/">`},
		"a second style":         {"</head>", "<style>tr{display:none}</style></head>"},
		"another policy":         {"default-src 'none'", "default-src *"},
		"no policy":              {`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'" />`, ""},
		"a number of its own":    {"<tbody>", `<tbody><tr><td class="n">0</td></tr>`},
		"another sign":           {`data-json="/policies/0/verdict">Fail`, `data-json="/policies/0/verdict">Pass`},
		"a sum of nothing":       {`data-json="/policies/0/deleted/by_row">97<`, `data-json="/policies/0/deleted/days/1-0/by_row">0<`},
		"a place of another":     {`data-json="/policies/0/verdict"`, `data-json="/policies/3/verdict"`},
	} {
		forged := []byte(strings.Replace(string(page), edit[0], edit[1], 1))
		if bytes.Equal(forged, page) {
			t.Errorf("%s: there is nothing to replace", name)
		}
		if err := CompareValues(forged, canonical); err == nil {
			t.Errorf("%s is not found", name)
		}
	}
}

// A page that only lacks something is right as far as it goes: how much it lacks is said.
func TestWhatAPageLacksIsCounted(t *testing.T) {
	t.Parallel()
	r, canonical := example(t)
	whole, err := New(r, "test", nil).HTML(canonical, "")
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(whole, []byte(`<tr><th scope="row"><span data-json="/policies/1/name">`))
	end := begin + bytes.Index(whole[begin:], []byte("</tr>")) + len("</tr>")
	if begin < 0 {
		t.Fatal("there is no row of the second policy")
	}
	less := append(append([]byte{}, whole[:begin]...), whole[end:]...)
	if err := CompareValues(less, canonical); err != nil {
		t.Errorf("what it still shows is wrong: %v", err)
	}
	want := bytes.Count(whole[begin:end], []byte("data-json"))
	if n, first, err := Lacking(less, whole); n != want || first != "/policies/1/name" || err != nil {
		t.Errorf("it lacks %d values from %s on, not %d: %v", n, first, want, err)
	}
	if n, _, err := Lacking(whole, whole); n != 0 || err != nil {
		t.Errorf("the whole page lacks %d: %v", n, err)
	}
}
