package functions_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lapse/internal/fixture"
	"lapse/internal/fixture/definitions"
	"lapse/planner/functions"
	"lapse/schemas"
)

var update = flag.Bool("update", false, "write the golden files")

// goldenBases are the policies that have most in common with another. The file of a policy holds what of its functions differs from those of
// its base, made for the same table and key. The base's own are kept by its file, so a change to a template shows in plain.sql, and one to the
// text of a kind in the kind's file.
var goldenBases = map[string]string{
	"calendar": "date", "date": "ttl_interval", "drop_partition": "plain", "epoch": "plain", "expression": "epoch", "expression_where": "boundless",
	"boundless": "kind_text", "kind_alone": "plain", "kind_bucket": "plain", "kind_epoch_document": "epoch", "kind_instant": "kind_text_document",
	"kind_text": "ttl", "kind_text_document": "kind_text", "plain_where": "ttl_where", "sidecar": "plain", "sliced": "plain", "soft": "plain",
	"soft_sidecar": "sidecar", "ttl": "ttl_where", "ttl_interval": "ttl_where", "ttl_where": "plain",
}

// goldenWholes are the policies whose file holds all that a batch calls, whatever it has in common.
var goldenWholes = []string{"sidecar", "soft", "ttl_where"}

// wantGolden compares the text of a version's functions with a file.
func wantGolden(t *testing.T, name string) {
	t.Helper()
	d := definitions.All()[name]
	got := functionsText(t, &d)
	if of, found := goldenBases[name]; found {
		base := definitions.All()[of]
		base.ID, base.Version, base.Name, base.Table, base.Key, base.Batch, base.SearchPath = d.ID, d.Version, d.Name, d.Table, d.Key, d.Batch, d.SearchPath
		got = fmt.Sprintf("-- What differs from %s.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.\n", of) +
			differences(functionsText(t, &base), got, slices.Contains(goldenWholes, name))
	}
	fixture.WantFile(t, *update, filepath.Join("testdata", name+".sql"), got)
}

func functionsText(t *testing.T, d *functions.Definition) string {
	t.Helper()
	create, give, err := functions.SQL(d, schemas.RolesFor(schemas.DefaultRolePrefix))
	if err != nil {
		t.Fatal(err)
	}
	return create + "\n" + functions.AsMember(give, d, schemas.RolesFor(schemas.DefaultRolePrefix))
}

// differences are those of each function. What a batch calls is there whole if that is asked for, and so is what the base does not have.
func differences(from, to string, whole bool) string {
	base := map[string]string{}
	for _, f := range splitFunctions(from) {
		base[f.name] = f.text
	}
	var out strings.Builder
	for _, f := range splitFunctions(to) {
		before, found := base[f.name]
		delete(base, f.name)
		switch batch := strings.HasPrefix(f.name, "lapse.delete_") || strings.HasPrefix(f.name, "lapse.find_"); {
		case !found || whole && batch:
			out.WriteString(f.text)
		case before != f.text:
			lines, hash := difference(before, f.text)
			fmt.Fprintf(&out, "@@ %s, in place of %s\n%s", f.name, hash, lines)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		fmt.Fprintf(&out, "@@ no %s\n", name)
	}
	return out.String()
}

type functionText struct{ name, text string }

// splitFunctions are the functions of a text, each with the comment above it, and the grants.
func splitFunctions(text string) (all []functionText) {
	const end = "$lapse$;\n"
	for _, part := range strings.SplitAfter(text, end) {
		name := "grants"
		if _, create, found := strings.Cut(part, "create function "); found {
			name, _, _ = strings.Cut(create, "(")
		}
		all = append(all, functionText{name, part})
	}
	return all
}

// difference is what makes one text another, line by line, and a hash of what is not there any more and of the lines where that was:
// both together say what the other text is.
func difference(from, to string) (lines, hash string) {
	a, b := strings.Split(from, "\n"), strings.Split(to, "\n")
	same := commonLines(a, b)
	var out, left strings.Builder
	for i, j := 0, 0; i < len(a) || j < len(b); {
		gone, come := i, j
		for i < len(a) || j < len(b) {
			switch {
			case i < len(a) && j < len(b) && a[i] == b[j]:
			case j == len(b) || i < len(a) && same[i+1][j] >= same[i][j+1]:
				i++
				continue
			default:
				j++
				continue
			}
			break
		}
		if gone < i || come < j {
			fmt.Fprintf(&left, "%q %q\n", a[max(gone-1, 0)], a[gone:i])
			fmt.Fprintf(&out, "%d", i-gone)
			if come == j {
				out.WriteString("-\n")
			}
		}
		for ; come < j; come++ {
			out.WriteString("+" + b[come] + "\n")
		}
		i, j = i+1, j+1
	}
	return out.String(), fmt.Sprintf("%.4x", sha256.Sum256([]byte(left.String())))
}

// commonLines are the lengths of the longest common subsequences of the lines from i and from j on.
func commonLines(a, b []string) [][]int {
	same := make([][]int, len(a)+1)
	for i := range same {
		same[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			same[i][j] = max(same[i+1][j], same[i][j+1])
			if a[i] == b[j] {
				same[i][j] = max(same[i][j], same[i+1][j+1]+1)
			}
		}
	}
	return same
}

// Where a text is changed, moved or left out, its difference is another one.
func TestADifferenceSaysWhatTheTextIs(t *testing.T) {
	t.Parallel()
	const base = "a\nb\nb\nc\nd\ne\n"
	seen := map[string]string{}
	for _, text := range []string{base, "a\nb\nc\nd\ne\n", "a\nb\nb\nd\ne\n", "a\nb\nb\nc\ne\n", "x\na\nb\nb\nc\nd\ne\n", "a\nb\nb\nc\nx\nd\ne\n", "a\nb\nb\nc\nd\nx\ne\n", "a\nb\nb\nc\nx\ne\n", "a\nb\nb\nx\nd\ne\n", ""} {
		lines, hash := difference(base, text)
		if (lines == "") != (text == base) || seen[lines+hash] != "" {
			t.Errorf("%q: %q %s, which is that of %q too", text, lines, hash, seen[lines+hash])
		}
		seen[lines+hash] = text
	}
	if lines, _ := difference(base, "a\nx\ny\nb\nd\ne\nz\n"); lines != "1+x\n+y\n1-\n0+z\n" && lines != "0+x\n+y\n2-\n0+z\n" {
		t.Errorf("%q", lines)
	}
}

// Each golden file is that of a policy, and leads to plain.
func TestEveryGoldenFileIsOfAPolicy(t *testing.T) {
	t.Parallel()
	all := definitions.All()
	files, err := filepath.Glob(filepath.Join("testdata", "*.sql"))
	fixture.Must(t, err)
	if len(files) != len(all) {
		t.Errorf("%d files of %d policies", len(files), len(all))
	}
	for name := range all {
		of, steps := name, 0
		for ; of != "plain" && steps < len(all); steps++ {
			of = goldenBases[of]
		}
		if of != "plain" {
			t.Errorf("%s does not come to plain: %q", name, of)
		}
	}
}
