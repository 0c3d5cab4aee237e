//go:build long

package audit_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// Kafka's own consumer, in Java, unpacks our batches and shows the headers, so that a filter needs no parser of bodies.
func TestKafkasOwnConsumerTellsCausesApartByTheirHeaders(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		r, want := newRig(t, db, kafkatest.Broker(t)), newExpected()
		w := &writer{conn: db.Connect(t)}
		take := func(n int) []int64 {
			ids, err := w.rows(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			return ids
		}
		for _, tx := range []transaction{
			batch(take(300), nil), user(take(200)), forger(take(20)), intruder(take(40)), latecomer(take(30)), batch(take(1), nil),
		} {
			if err := w.commit(t.Context(), want, tx); err != nil {
				t.Fatal(err)
			}
		}
		r.once(t)
		events := len(kafkatest.ReadAllOn(t, r.broker, r.settings.System)) + len(kafkatest.ReadAllOn(t, r.broker, r.settings.User))
		got := consoleConsumer(t, r.broker, strings.TrimSuffix(r.settings.System, "system")+"(system|user)", events)
		if !maps.Equal(got, want.causes) {
			t.Errorf("%d rows by cause %v, want %d: %v", len(got), countCauses(got), len(want.causes), countCauses(want.causes))
		}
		t.Logf("%v", countCauses(got))
		others := maps.Clone(want.causes)
		maps.DeleteFunc(others, func(_, cause string) bool { return cause == "system" })
		maps.DeleteFunc(want.causes, func(_, cause string) bool { return cause != "system" })
		if got := rowsByHeaders(t, asDocumented(t, r, "kafka-console-consumer.sh", events)); len(others) == 0 || !maps.Equal(got, others) {
			t.Errorf("the documented command shows %d rows by cause %v, want %v", len(got), countCauses(got), countCauses(others))
		}
		if _, err := exec.LookPath("kcat"); err != nil {
			t.Log("kcat is not here: apt-get install kcat")
			return
		}
		if got := rowsByHeaders(t, strings.ReplaceAll(asDocumented(t, r, "kcat", events), "=", ":")); !maps.Equal(got, want.causes) {
			t.Errorf("the documented kcat shows %d rows by cause %v, want %v", len(got), countCauses(got), countCauses(want.causes))
		}
	})
}

// untilAll has the console consumer end with the last of the records: eight seconds of silence, as documented, come early on a busy machine.
func untilAll(records int) string {
	return fmt.Sprintf("--max-messages %d --timeout-ms 120000", records)
}

// asDocumented runs the command of docs/configuration.md that begins with a program, with the names of this test, and for so
// many records.
func asDocumented(t *testing.T, r *rig, program string, records int) string {
	t.Helper()
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(string(page), "\n$ "+program+" ")
	command, _, ended := strings.Cut(command, "\n```")
	topics := strings.TrimSuffix(r.settings.System, "system")
	command = strings.NewReplacer("kafka-1:9092", r.broker.Addr(), `lapse\.deletes\.`, regexp.QuoteMeta(topics), "lapse.deletes.", topics,
		"--timeout-ms 8000", untilAll(records)).Replace(command)
	if !found || !ended || !strings.Contains(command, r.broker.Addr()) || !strings.Contains(command, "test-") {
		t.Fatalf("the page has no such command: %q", command)
	}
	kafka, err := kafkaserver.Find()
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", `console() { "$JAVA" -Xmx256m -cp "$LIBS/*" org.apache.kafka.tools.consumer.ConsoleConsumer "$@"; }
		`+map[string]string{"kafka-console-consumer.sh": "console", "kcat": "kcat"}[program]+" "+command)
	var said strings.Builder
	shell.Env, shell.Stderr = append(os.Environ(), "JAVA="+kafka.Java, "LIBS="+kafka.LibDir), &said
	out, err := shell.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, said.String())
	}
	return string(out)
}

// consoleConsumer is each row's cause, as the headers of its event say, by table and key, of so many records.
func consoleConsumer(t *testing.T, broker *kafkaserver.Server, topics string, records int) map[string]string {
	t.Helper()
	args := []string{
		"--bootstrap-server", broker.Addr(), "--include", topics, "--from-beginning",
		"--formatter-property", "print.headers=true", "--formatter-property", "print.key=true", "--formatter-property", "print.value=false",
	}
	text, err := broker.Tool(t.Context(), "org.apache.kafka.tools.consumer.ConsoleConsumer", append(args, strings.Fields(untilAll(records))...)...)
	if err != nil {
		t.Fatal(err)
	}
	return rowsByHeaders(t, text)
}

// rowsByHeaders reads what the console consumer prints.
func rowsByHeaders(t *testing.T, text string) map[string]string {
	t.Helper()
	causes := map[string]string{}
	for line := range strings.Lines(text) {
		headers, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		key, _, _ := strings.Cut(rest, "\t") // the value after it, if it is printed
		named := map[string]string{}
		for header := range strings.SplitSeq(headers, ",") {
			name, value, _ := strings.Cut(header, ":")
			named[name] = value
		}
		if named["lapse-op"] != "delete" {
			continue // fences
		}
		row := rowKey(named["lapse-table"], key)
		if causes[row] != "" {
			t.Errorf("a row of %s is there twice", named["lapse-table"])
		}
		causes[row] = named["lapse-cause"]
	}
	return causes
}

func countCauses(causes map[string]string) map[string]int {
	counts := map[string]int{}
	for _, cause := range slices.Collect(maps.Values(causes)) {
		counts[cause]++
	}
	return counts
}
