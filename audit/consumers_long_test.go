//go:build long

package audit_test

import (
	"bufio"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// The consumers of examples/consumers, in four languages, print each event of users once, and no fence.
func TestTheExamplesOfConsumersPrintEachEvent(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		r, want := newRig(t, db, kafkatest.Broker(t)), newExpected()
		w := &writer{conn: db.Connect(t)}
		for range 3 {
			for _, kind := range []func([]int64) transaction{user, forger, system} {
				ids, err := w.rows(t.Context(), 40)
				if err == nil {
					err = w.commit(t.Context(), want, kind(ids))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			r.once(t)
		}
		maps.DeleteFunc(want.causes, func(_, cause string) bool { return cause == "system" })
		for _, example := range []struct {
			name    string
			command func(t *testing.T) []string
		}{
			{"go", goConsumer}, {"python", pythonConsumer}, {"node", nodeConsumer}, {"streams", streamsConsumer},
		} {
			t.Run(example.name, func(t *testing.T) {
				command := append(example.command(t), r.broker.Addr(), r.settings.User)
				if got := printed(t, command, len(want.causes)); !maps.Equal(got, want.causes) {
					t.Errorf("%d rows by cause %v, want %v", len(got), countCauses(got), countCauses(want.causes))
				}
			})
		}
	})
}

// printed runs a consumer until it has printed so many events, by row.
func printed(t *testing.T, command []string, events int) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	run := exec.CommandContext(ctx, command[0], command[1:]...)
	run.Stderr = os.Stderr
	out, err := run.StdoutPipe()
	if err == nil {
		err = run.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	causes := map[string]string{}
	lines := bufio.NewScanner(out)
	for len(causes) < events && lines.Scan() {
		fields := strings.SplitN(lines.Text(), "\t", 4)
		if len(fields) != 4 || fields[1] != "delete" {
			t.Errorf("a line of %d fields is no event", len(fields))
			break
		}
		row := rowKey(fields[2], fields[3])
		if causes[row] != "" {
			t.Errorf("a row of %s is there twice", fields[2])
			break
		}
		causes[row] = fields[0]
	}
	cancel()
	_ = run.Wait()
	return causes
}

func example(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../examples/consumers", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func goConsumer(t *testing.T) []string {
	program := filepath.Join(t.TempDir(), "consumer")
	install(t, "..", "go", "build", "-o", program, "./examples/consumers")
	return []string{program}
}

func pythonConsumer(t *testing.T) []string {
	home := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "venv", home).CombinedOutput(); err != nil {
		t.Skipf("python3 makes no venv: %v: %s", err, out)
	}
	install(t, ".", filepath.Join(home, "bin/pip"), "install", "--quiet", "confluent-kafka==2.6.1")
	return []string{filepath.Join(home, "bin/python"), example(t, "consumer.py")}
}

func nodeConsumer(t *testing.T) []string {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not here")
	}
	folder := t.TempDir()
	text, err := os.ReadFile(example(t, "consumer.mjs"))
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "consumer.mjs"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	install(t, folder, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "kafkajs@2.2.4", "kafkajs-snappy@1.1.0")
	return []string{"node", filepath.Join(folder, "consumer.mjs")}
}

func streamsConsumer(t *testing.T) []string {
	for _, program := range []string{"mvn", "javac"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not here")
		}
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "pom.xml"), []byte(streamsPOM), 0o600); err != nil {
		t.Fatal(err)
	}
	install(t, folder, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs", "-DincludeScope=runtime")
	return []string{"java", "-Djava.io.tmpdir=" + folder, "-cp", filepath.Join(folder, "libs", "*"), example(t, "Streams.java")}
}

const streamsPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>lapse</groupId><artifactId>streams</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

func install(t *testing.T, folder, program string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir = folder
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}
