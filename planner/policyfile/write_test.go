package policyfile

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"lapse/planner/expiry"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// said is a policy without what is only of its file.
func said(p Policy) Policy {
	p.File, p.source, p.places, p.lines, p.Floors = "", "", nil, nil, nil
	return p
}

// writeAndRead is what the parser reads of what the writer writes.
func writeAndRead(t testing.TB, policies []Policy) []Policy {
	t.Helper()
	text := Write(policies)
	file, err := Parse("written.yaml", text)
	if err != nil {
		t.Fatalf("%v\nof\n%s", err, text)
	}
	read := make([]Policy, len(file.Policies))
	for i, p := range file.Policies {
		read[i] = said(p)
	}
	return read
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	t.Parallel()
	schema := policySchema(t)
	for name, text := range corpus(t, "good") {
		file, err := Parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]Policy, len(file.Policies))
		for i, p := range file.Policies {
			want[i] = said(p)
		}
		if got := writeAndRead(t, file.Policies); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v\nof\n%s", name, got, want, Write(file.Policies))
		}
		if err := validate(schema, Write(file.Policies)); err != nil {
			t.Errorf("%s: the schema refuses what is written: %v\n%s", name, err, Write(file.Policies))
		}
	}
}

// oddTexts are texts that YAML would take for something else, or read otherwise, if they were there as they are.
var oddTexts = []string{
	"true", "null", "~", "no", "1", "1.5", "0x1f", "1e-3", "2020-01-01", "1_000", ".inf", "-", "- a", "a: b", "a #b", "#a", "{a}", "[a]", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a",
	"'", "''", `"`, `\`, `\n`, " a ", "a\nb", "a\n\n b\n", "\ta", "a\r\nb", "a\u0085b", "a\u2028b\u2029", "\ufeffa", "a\u00a0", "\x01", "\x7f", "ä€😀", "a,b", "?", "? a", "<<", "=", "5 minutes", "1 e", "a-b", "1-1", "1e-e",
}

// everyKey sets each key of a policy, in one of the ways in which it can be.
func everyKey(r *rand.Rand) Policy {
	text := func() string { return oddTexts[r.IntN(len(oddTexts))] }
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	p := Policy{
		Name: schemas.PolicyName(pick("true", "1", "1e3", "null", "sessions-30d", "a", "2020-01-01", "0x1f", "a_b", "a.b-c", "no")), Table: text(), State: schemas.State(pick("observing", "armed", "paused")),
		Expire: expiry.Entry{"column": text(), "after": pick("30", "30 days", "P1D", "01:00")},
		Terms: Terms{
			Where: text(), Batch: 1 + r.IntN(MaxBatch), Limits: Limits{Pace: pick("", PaceUnlimited), Rate: 1 + r.IntN(1000), MaxFraction: 1 / (1 + 1e7*r.Float64()), MaxRows: 1 + r.Int64N(MaxRowsPerRun)},
			Moves: MovesDetect, Evidence: EvidenceDue, Index: IndexCreate, Owner: text(), Basis: text(), Latitude: text(),
			Events: Events{Values: EventsHashedKeys}, Triggers: Triggers{Trusted: true}, Shards: &Shards{Count: 2 + r.IntN(MaxShards-1)},
			Window: &schedule.Window{},
		},
	}
	*p.Window, _ = schedule.ParseWindow("22:00-06:00 Europe/Berlin")
	switch daily, cron := (schedule.Daily{Hour: 23, Minute: 5, Zone: "Europe/Berlin"}), (schedule.Cron{}); r.IntN(3) {
	case 0:
		p.Every = pick("1 hour", "5 minutes", "P1D", "1")
	case 1:
		p.Daily = &daily
	case 2:
		cron, _ = schedule.ParseCron("15 22-23 * * mon-fri Europe/Berlin")
		p.Cron = &cron
	}
	if r.IntN(2) == 0 {
		p.MaxRows, p.MaxPercent = 0, []float64{100, 0.000001, 1.5, 33.3333333}[r.IntN(4)]
		p.Events = Events{Values: EventsColumns, Columns: []string{text(), "another"}}
		p.Triggers.SearchPath, p.Shards.By = "app, \"$user\"", []string{"x", "y z"}
	}
	switch r.IntN(3) {
	case 0:
		p.Action = Action{Kind: ActionSoft, Column: text()}
	case 1:
		p.Action = Action{Kind: ActionDropPartition}
	}
	return p
}

func TestEveryKeyIsWrittenAndReadAgain(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	unset := map[string]int{}
	const rounds = 500
	for range rounds {
		p := everyKey(r)
		if got := writeAndRead(t, []Policy{p}); len(got) != 1 || !reflect.DeepEqual(got[0], p) {
			t.Fatalf("got\n%+v\nwant\n%+v\nof\n%s", got, p, Write([]Policy{p}))
		}
		for _, k := range keys() {
			if k.write(&p) == "" {
				unset[k.name]++
			}
		}
	}
	for _, k := range keys() {
		if unset[k.name] == rounds {
			t.Errorf("the key %s is never written: give it a value in everyKey", k.name)
		}
	}
}

// leaves are the fields of a struct that hold values, by path.
func leaves(v reflect.Value, path string, each func(path string, field reflect.Value)) {
	for i := range v.NumField() {
		f, at := v.Type().Field(i), v.Field(i)
		name := strings.TrimPrefix(path+"."+f.Name, ".")
		if at.Kind() == reflect.Struct {
			leaves(at, name, each)
			continue
		}
		each(name, at)
	}
}

// A term that no key writes, or that nobody sees in a difference, was forgotten in keys.
func TestEveryTermIsOfAKeyAndIsShown(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	written, shown := map[string]bool{}, map[string]bool{}
	for range 200 {
		p := everyKey(r)
		leaves(reflect.ValueOf(&p.Terms).Elem(), "", func(path string, _ reflect.Value) {
			without := p
			leaves(reflect.ValueOf(&without.Terms).Elem(), "", func(other string, field reflect.Value) {
				if other == path && !field.IsZero() {
					field.SetZero()
					written[path] = written[path] || without.Entry() != p.Entry()
					shown[path] = shown[path] || fmt.Sprint(without.Terms.Fields()) != fmt.Sprint(p.Terms.Fields())
				}
			})
		})
	}
	leaves(reflect.ValueOf(Terms{}), "", func(path string, _ reflect.Value) {
		if !written[path] || !shown[path] {
			t.Errorf("Terms.%s: written by a key: %t; shown by one: %t (everyKey has to set it)", path, written[path], shown[path])
		}
	})
}
