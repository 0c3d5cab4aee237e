package schemas_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lapse/schemas"
)

const functionText = `-- A comment.
create table lapse.t (a int);
create function lapse.enter(a int, b text[]) returns table (c int, d text)
language plpgsql stable strict security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, YMD'
as $lapse$
begin
  return; -- create function lapse.inner() is text
end
$lapse$;
create function lapse.plain() returns trigger
language sql
as $lapse$
  select 1
$lapse$;
`

func TestAFunctionIsReadAsTheCatalogWillHaveIt(t *testing.T) {
	t.Parallel()
	want := []schemas.Function{
		{
			Name: "lapse.enter", Owner: "somebody", Language: "plpgsql", Volatility: "stable", Definer: true, Strict: true,
			Settings: []string{"datestyle=ISO, YMD", "search_path=pg_catalog, pg_temp"},
			Body:     "\nbegin\n  return; -- create function lapse.inner() is text\nend\n",
		},
		{Name: "lapse.plain", Owner: "somebody", Language: "sql", Volatility: "volatile", Body: "\n  select 1\n"},
	}
	for _, text := range []string{
		functionText, strings.Replace(functionText, "create function lapse.plain", "create or replace function lapse.plain", 1),
		"-- Deletes rows of shop.\"recreate function x\".\n" + functionText,
	} {
		if got, err := schemas.ParseFunctions(text, "somebody"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v, %v\nwant\n%+v", got, err, want)
		}
	}
}

// What cannot be compared with the catalog must not be passed over.
func TestALayoutThatIsNotOursIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][2]string{
		"in capitals":                  {"create function lapse.plain", "CREATE FUNCTION lapse.plain"},
		"a procedure":                  {"create function lapse.plain", "create procedure lapse.plain"},
		"with two spaces":              {"create function lapse.plain", "create  function lapse.plain"},
		"on two lines":                 {"create function lapse.plain", "create\nfunction lapse.plain"},
		"in another schema":            {"lapse.plain", "public.plain"},
		"in no schema":                 {"lapse.plain", "plain"},
		"with a quoted name":           {"lapse.plain", `lapse."plain"`},
		"in another quote":             {"$lapse$\n  select 1\n$lapse$", "$$\n  select 1\n$$"},
		"between apostrophes":          {"$lapse$\n  select 1\n$lapse$", "'select 1'"},
		"without an end":               {"  select 1\n$lapse$", "  select 1\n"},
		"language on the first line":   {"returns trigger\nlanguage sql", "returns trigger language sql"},
		"attributes before language":   {"\nlanguage sql", "\nstable language sql"},
		"attributes after settings":    {"set datestyle = 'ISO, YMD'\n", "set datestyle = 'ISO, YMD'\ncost 1000\n"},
		"an attribute that is unknown": {"language sql", "language sql leakproof"},
		"strict in other words":        {"language sql", "language sql returns null on null input"},
		"a setting in other words":     {"set datestyle = 'ISO, YMD'", "set datestyle to 'ISO, YMD'"},
		"a setting of the session's":   {"set datestyle = 'ISO, YMD'", "set datestyle from current"},
	} {
		text := strings.Replace(functionText, change[0], change[1], 1)
		if text == functionText {
			t.Fatalf("%s: the text is what it was", name)
		}
		if got, err := schemas.ParseFunctions(text, "somebody"); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func TestEveryFunctionOfABatchIsInTheMigrations(t *testing.T) {
	t.Parallel()
	all, _, err := schemas.RunFunctions(schemas.RolesFor("lapse_"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, strings.TrimPrefix(f.Name, "lapse."))
		if f.Name == "lapse.pin" { // it sets its caller's
			continue
		}
		if f.Owner != "lapse_owner" || !slices.Contains(f.Settings, "search_path=pg_catalog, pg_temp") {
			t.Errorf("%s belongs to %s, settings %q", f.Name, f.Owner, f.Settings)
		}
	}
	const want = "answers awaited changed_columns changed_part check_caller check_leaf clear code deleter_of distrusted enforced_holds enter examine familiar half_latitude held held_along held_keys held_on hold_fault holds_on intruders is_caller joined keep kept_by lease_time leave leave_drop leaves lock_along lock_rows locker low_mark made mark_time may_ask meaning next_portion overwrites part part_of parts pin publications_fault publications_trouble quarantine_kept quarantined quarantined_keys reach readable record record_drop referring resist same_columns same_table set_key sets signature strayed surroundings system_identifier tally_of timeline to_lock unpromised unseen ways worth_a_mark"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, signature := range schemas.DeleterFunctions() {
		name, _, _ := strings.Cut(strings.TrimPrefix(signature, "lapse."), "(")
		i := slices.Index(names, name)
		if slices.Contains([]string{"inspect", "pin", "next_portion", "cascade_statement", "held_rows", "candidates", "inspect_leaf", "readable", "locker", "lock_along", "lock_rows", "kept_by"}, name) {
			continue // a survey's, and those that have no rights of their own
		}
		if i < 0 || !all[i].Definer {
			t.Errorf("%s is a deleter's, and no function of a batch with rights of its own", signature)
		}
	}
}

func TestADigestIsOverEverythingThatDecidesWhatACallDoes(t *testing.T) {
	t.Parallel()
	functions, err := schemas.ParseFunctions(functionText, "somebody")
	if err != nil {
		t.Fatal(err)
	}
	digest := schemas.DigestOf(functions...)
	seen := map[schemas.Digest]string{digest: "nothing"}
	changes := map[string]func(f *schemas.Function){
		"name":            func(f *schemas.Function) { f.Name += "x" },
		"owner":           func(f *schemas.Function) { f.Owner += "x" },
		"language":        func(f *schemas.Function) { f.Language = "sql" },
		"volatility":      func(f *schemas.Function) { f.Volatility = "volatile" },
		"definer":         func(f *schemas.Function) { f.Definer = !f.Definer },
		"strict":          func(f *schemas.Function) { f.Strict = !f.Strict },
		"a setting":       func(f *schemas.Function) { f.Settings = f.Settings[1:] },
		"settings joined": func(f *schemas.Function) { f.Settings = []string{strings.Join(f.Settings, "")} },
		"body":            func(f *schemas.Function) { f.Body += " " },
		"name and owner":  func(f *schemas.Function) { f.Name, f.Owner = f.Name+f.Owner[:1], f.Owner[1:] },
		"settings end":    func(f *schemas.Function) { f.Body, f.Settings = f.Body+f.Settings[0], f.Settings[1:] },
	}
	if n := reflect.TypeFor[schemas.Function]().NumField(); n != 8 {
		t.Errorf("a function has %d fields: is each of them in the digest?", n)
	}
	for name, change := range changes {
		changed := functions[0]
		changed.Settings = slices.Clone(changed.Settings)
		change(&changed)
		got := schemas.DigestOf(changed, functions[1])
		if former, found := seen[got]; found {
			t.Errorf("changing %s gives the digest of changing %s", name, former)
		}
		seen[got] = name
	}
	if schemas.DigestOf(functions[1], functions[0]) == digest || schemas.DigestOf(functions[0]) == digest {
		t.Error("order or number of the functions do not matter")
	}
}

// What is not ASCII cannot be sent to a database of every encoding, not even in a comment.
func TestMigrationsAreASCII(t *testing.T) {
	t.Parallel()
	steps, err := schemas.Migrations(schemas.RolesFor("lapse_"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		for i, line := range strings.Split(step.SQL, "\n") {
			if strings.ContainsFunc(line, func(r rune) bool { return r > 126 }) {
				t.Errorf("version %d, line %d: %s", step.Version, i+1, line)
			}
		}
	}
}

// A reader of the log knows the text of a policy's functions, except for the values in it. Without the tag key no guess can be tried.
func TestTheDigestOfAClaimTellsTextsApartForWhoHasTheKey(t *testing.T) {
	t.Parallel()
	one, other := schemas.DigestOf(schemas.Function{Body: "where email = 'a@example.com'"}), schemas.DigestOf(schemas.Function{Body: "where email = 'b@example.com'"})
	key, another := schemas.Key(strings.Repeat("k", schemas.MinKey)), schemas.Key(strings.Repeat("l", schemas.MinKey))
	again := schemas.DigestOf(schemas.Function{Body: "where email = 'a@example.com'"})
	if one.Keyed(key) != again.Keyed(key) || one.Keyed(key) == other.Keyed(key) {
		t.Error("the same text has not the same digest, or another text has it")
	}
	if one.Keyed(key) == one || one.Keyed(key) == one.Keyed(another) {
		t.Error("the digest does not depend on the key")
	}
}

// The functions that a look runs, and that check leaves for the next one, are compared first: all that these call are in the list.
func TestWhatALookCallsIsCompared(t *testing.T) {
	t.Parallel()
	roles := schemas.RolesFor(schemas.DefaultRolePrefix)
	all, err := schemas.CatalogFunctions(roles)
	if err != nil {
		t.Fatal(err)
	}
	_, looks, err := schemas.RunFunctions(roles)
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`lapse\.[a-z_]+\(`)
	comment := regexp.MustCompile(`--[^\n]*`)
	bodies := map[string]string{}
	for _, f := range all {
		bodies[f.Name] = comment.ReplaceAllString(f.Body, "")
	}
	compared := map[string]bool{}
	for _, f := range looks {
		compared[f.Name] = true
	}
	reached, next := map[string]bool{}, []string{"lapse.candidates", "lapse.inspect_leaf", "lapse.acquaint", "lapse.pin"}
	for len(next) > 0 {
		name := next[0]
		next = next[1:]
		if reached[name] {
			continue
		}
		reached[name] = true
		if !compared[name] {
			t.Errorf("%s is called, and not compared", name)
		}
		for _, call := range calls.FindAllString(bodies[name], -1) {
			if called := strings.TrimSuffix(call, "("); bodies[called] != "" {
				next = append(next, called)
			}
		}
	}
	if len(reached) < 40 {
		t.Errorf("%d functions are reached: the search is wrong", len(reached))
	}
}
