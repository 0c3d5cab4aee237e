package schemas_test

import (
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
	steps, err := schemas.Migrations(schemas.Roles{})
	if err != nil {
		t.Fatal(err)
	}
	for version, checksum := range released {
		if got := steps[version-1].Checksum; got != checksum {
			t.Errorf("the files of version %d have checksum %s, and were released with %s: write a file of the next version instead",
				version, got, checksum)
		}
	}
}

// A catalog of such a version could not be told from a released one.
func TestNoVersionIsOneThatWasNeverReleased(t *testing.T) {
	t.Parallel()
	if schemas.Version >= schemas.Unreleased[0] && schemas.Version <= schemas.Unreleased[1] {
		t.Fatalf("version %d was never released: the next one after %d is %d", schemas.Version, schemas.Unreleased[0]-1, schemas.Unreleased[1]+1)
	}
	for found, says := range map[int]string{
		schemas.Version: "", 3: "the catalog has version 3, which was never released and is not upgraded: remove it", 6: "version 6, which was never released",
		99: "the catalog has version 99, this program knows 1: use a newer lapse", 0: "the catalog has version 0, this program needs 1: run lapse init",
	} {
		why, remedy := schemas.OtherVersion(found)
		if got := why + ": " + remedy; !strings.Contains(got, says) || (why == "") != (says == "") {
			t.Errorf("version %d: %s", found, got)
		}
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

// whole is a folder of three versions in which nothing is missing.
func whole() []string {
	return []string{"0001_1_a.sql", "0001_2_b.sql", "0002_1_a.sql", "0002_2_b.sql", "0003_1_a.sql", "0003_2_b.sql"}
}

func TestAGapBetweenMigrationsIsRefused(t *testing.T) {
	t.Parallel()
	roles := schemas.RolesFor("lapse_")
	steps, err := schemas.ReadMigrations(folder(whole()...), roles)
	if err != nil || len(steps) != 3 || steps[0].SQL != "-- 0001_1_a.sql\n-- 0001_2_b.sql\n" || steps[2].Version != 3 {
		t.Fatalf("a whole folder: %v, %v", steps, err)
	}
	for missing, says := range map[string]string{"0001": "the files of version 1 are missing", "0002": "the files of version 2 are missing"} {
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
	for _, more := range []string{"0005_1_a.sql", "x.sql", "0002_3_c.sql={{.Nothing}}", "0002_3_c.sql={{"} {
		if _, err := schemas.ReadMigrations(folder(append(whole(), more)...), roles); err == nil {
			t.Errorf("a folder with %s is not an error", more)
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
	named := append(whole(), "0002_3_c.sql=set role {{.Owner}};")
	if of("a_", named...) != of("b_", named...) {
		t.Error("two prefixes make two checksums")
	}
	want := of("a_", whole()...)
	for what, files := range map[string][]string{
		"another file":  append(whole(), "0002_3_c.sql"),
		"an edited one": append(whole(), "0002_2_b.sql=-- 0002_2_b.sql \n"),
		"an empty one":  append(whole(), "0002_0.sql="),
	} {
		if of("a_", files...) == want {
			t.Errorf("%s does not change the checksum", what)
		}
	}
	if of("a_", append(whole(), "0001_3_c.sql", "0003_3_c.sql")...) != want {
		t.Error("the files of other versions change the checksum")
	}
}
