package schemas_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"lapse/schemas"
)

// The steps of released versions as they were released. A line is added when a version is; none is ever changed: `lapse init`
// refuses a database that was made from other files than it has. No version was released so far.
var released = map[int]string{}

func TestTheFilesOfAReleasedVersionAreNeverEdited(t *testing.T) {
	t.Parallel()
	got, err := schemas.Checksums()
	if err != nil {
		t.Fatal(err)
	}
	for version, checksum := range released {
		if got[version] != checksum {
			t.Errorf("the files of version %d have checksum %s, and were released with %s: write a file of the next version instead",
				version, got[version], checksum)
		}
	}
	if len(got) != schemas.Version-schemas.FirstVersion+1 {
		t.Errorf("there are checksums of %d versions", len(got))
	}
}

// folder is a folder of migrations with these files, by name. One without text has its name as text.
func folder(files ...string) fstest.MapFS {
	all := fstest.MapFS{}
	for _, file := range files {
		name, text, found := strings.Cut(file, "=")
		if !found {
			text = "-- " + name + "\n"
		}
		all["migrations/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

// whole is a folder in which nothing is missing.
func whole() []string {
	var all []string
	for version := schemas.FirstVersion; version <= schemas.Version; version++ {
		all = append(all, fmt.Sprintf("%04d_1_a.sql", version), fmt.Sprintf("%04d_2_b.sql", version))
	}
	return all
}

func TestAGapBetweenMigrationsIsRefused(t *testing.T) {
	t.Parallel()
	roles := schemas.RolesFor("lapse_")
	steps, err := schemas.ReadMigrations(folder(whole()...), roles)
	if err != nil || len(steps) != schemas.Version-schemas.FirstVersion+1 || steps[0].SQL != "-- 0003_1_a.sql\n-- 0003_2_b.sql\n" {
		t.Fatalf("a whole folder: %v, %v", steps, err)
	}
	for missing, says := range map[string]string{
		"0003": "the files of version 3 are missing", "0004": "the files of version 4 are missing", "0005": "the files of version 5 are missing", "0006": "end with version 5",
	} {
		var left []string
		for _, file := range whole() {
			if !strings.HasPrefix(file, missing) {
				left = append(left, file)
			}
		}
		if _, err := schemas.ReadMigrations(folder(left...), roles); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("without %s: got %v, want it to say: %s", missing, err, says)
		}
	}
	for _, more := range []string{"0008_1_a.sql", "x.sql", "0004_3_c.sql={{.Nothing}}", "0004_3_c.sql={{"} {
		if _, err := schemas.ReadMigrations(folder(append(whole(), more)...), roles); err == nil {
			t.Errorf("a folder with %s is no error", more)
		}
	}
}

func TestAChecksumIsOfTheFilesAndNotOfTheRoles(t *testing.T) {
	t.Parallel()
	of := func(prefix string, files ...string) string {
		t.Helper()
		steps, err := schemas.ReadMigrations(folder(files...), schemas.RolesFor(prefix))
		if err != nil {
			t.Fatal(err)
		}
		return steps[1].Checksum
	}
	named := append(whole(), "0004_3_c.sql=set role {{.Owner}};")
	if of("a_", named...) != of("b_", named...) {
		t.Error("two prefixes make two checksums")
	}
	want := of("a_", whole()...)
	for what, files := range map[string][]string{
		"another file":  append(whole(), "0004_3_c.sql"),
		"an edited one": append(whole(), "0004_2_b.sql=-- 0004_2_b.sql \n"),
		"an empty one":  append(whole(), "0004_0.sql="),
	} {
		if of("a_", files...) == want {
			t.Errorf("%s does not change the checksum", what)
		}
	}
	if of("a_", append(whole(), "0003_3_c.sql", "0005_3_c.sql")...) != want {
		t.Error("the files of other versions change the checksum")
	}
}
