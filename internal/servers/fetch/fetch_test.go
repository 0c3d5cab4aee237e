package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"lapse/internal/servers"
)

// repositoryVariable names the repository to the test binary when it is run as mvn.
const repositoryVariable = "LAPSE_TEST_REPOSITORY"

// TestMain lets the test binary be the Maven of its tests: what it is asked for it gets over HTTP, and what it got so far it
// leaves when the connection breaks, as Maven does.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "mvn" {
		if err := fakeMaven(os.Args[1:]); err != nil {
			fmt.Println("[ERROR]", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fakeMaven does what dependency:copy does with -Dartifact and -DoutputDirectory.
func fakeMaven(args []string) error {
	var artifact, into string
	for _, arg := range args {
		if value, found := strings.CutPrefix(arg, "-Dartifact="); found {
			artifact = value
		}
		if value, found := strings.CutPrefix(arg, "-DoutputDirectory="); found {
			into = value
		}
	}
	part := strings.Split(artifact, ":")
	if len(part) != 4 || into == "" {
		return fmt.Errorf("asked for %q", args)
	}
	file := part[1] + "-" + part[2] + "." + part[3]
	answer, err := http.Get(os.Getenv(repositoryVariable) + "/" + path.Join(part[1], file))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	out, err := os.Create(filepath.Join(into, file))
	if err != nil {
		return err
	}
	_, err = io.Copy(out, answer.Body)
	return errors.Join(err, out.Close())
}

// repository is a Maven repository on the loopback interface, with one jar under every name.
type repository struct {
	*httptest.Server
	jar   []byte
	half  atomic.Bool // the connection ends in the middle of the jar
	asked atomic.Int64
}

// newRepository makes a repository, and puts a Maven that uses it before all others.
func newRepository(t *testing.T) *repository {
	t.Helper()
	for _, tool := range []string{"tar", "xz"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	r := &repository{jar: jar(t)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r.asked.Add(1)
		w.Header().Set("Content-Length", fmt.Sprint(len(r.jar)))
		end := len(r.jar)
		if r.half.Load() {
			end /= 2
		}
		_, _ = w.Write(r.jar[:end])
	}))
	t.Cleanup(r.Close)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "mvn")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(repositoryVariable, r.URL)
	return r
}

// jar is a jar with a .txz of a bin/postgres in it.
func jar(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "bin"), 0o755), os.WriteFile(filepath.Join(dir, "bin", "postgres"), []byte("elf"), 0o755)); err != nil {
		t.Fatal(err)
	}
	txz, err := exec.Command("tar", "-cJf", "-", "-C", dir, "bin").Output()
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	entry, err := w.Create("postgres-linux-x86_64.txz")
	if err == nil {
		_, err = entry.Write(txz)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// server is a release whose sum is that of the repository's jar.
func (r *repository) server(dir string) server {
	sum := sha256.Sum256(r.jar)
	return postgres(dir, servers.PostgresPin{Major: 18, Version: "18.6", SHA256: map[string]string{runtime.GOARCH: hex.EncodeToString(sum[:])}})
}

func TestAServerIsFetchedOnce(t *testing.T) {
	r := newRepository(t)
	s := r.server(t.TempDir())
	// What an interrupted fetch leaves.
	if err := errors.Join(os.MkdirAll(s.folder+".partial/bin", 0o755), os.WriteFile(s.folder+".partial/bin/initdb", nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := fetchMissing(t.Context(), []server{s}, adviceForServers); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(s.folder, "bin", "postgres"))
	if string(content) != "elf" || err != nil || !servers.Complete(s.folder, s.release) {
		t.Errorf("bin/postgres is %q, %v; complete: %t", content, err, servers.Complete(s.folder, s.release))
	}
	for _, left := range []string{s.folder + ".partial", filepath.Join(s.folder, "bin", "initdb")} {
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it gone", left, err)
		}
	}
	t.Setenv("PATH", t.TempDir()) // Nothing is missing, so no tool is needed.
	if err := fetchMissing(t.Context(), []server{s}, adviceForServers); err != nil || r.asked.Load() != 1 {
		t.Errorf("once it is there: %v; the repository was asked %d times", err, r.asked.Load())
	}
}

func TestWhatIsNotThePinnedReleaseIsRefused(t *testing.T) {
	r := newRepository(t)
	s := r.server(t.TempDir())
	r.jar = append([]byte(nil), r.jar...)
	r.jar[len(r.jar)/2] ^= 1
	err := fetchMissing(t.Context(), []server{s}, adviceForServers)
	if err == nil || !strings.Contains(err.Error(), "has SHA-256 ") || !strings.Contains(err.Error(), "pinned is ") {
		t.Errorf("got %v, want both sums", err)
	}
	if _, err := os.Stat(s.folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want nothing in the server's place", s.folder, err)
	}
}

func TestADownloadThatEndsHalfwayLeavesNothingAndIsMadeAgain(t *testing.T) {
	r := newRepository(t)
	r.half.Store(true)
	s, other := r.server(t.TempDir()), r.server(t.TempDir())
	if err := fetchMissing(t.Context(), []server{s, other}, adviceForServers); err == nil || !strings.Contains(err.Error(), "fetch "+s.release) {
		t.Errorf("got %v, want an error that names the release", err)
	}
	if r.asked.Load() < 2 {
		t.Error("the first that failed kept the second from being fetched")
	}
	if servers.Complete(s.folder, s.release) {
		t.Error("half a server is complete")
	}
	r.half.Store(false)
	if err := fetchMissing(t.Context(), []server{s}, adviceForServers); err != nil || !servers.Complete(s.folder, s.release) {
		t.Errorf("the next fetch: %v", err)
	}
}

func TestTheWantedVersionsAndKafkaAreFetched(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"":      "Kafka, 14, 15, 16, 17, 18",
		"15,18": "Kafka, 15, 18",
	} {
		majors, err := servers.WantedMajors(value)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range wanted("/servers", majors) {
			name := filepath.Base(s.folder)
			if name == "kafka" {
				name = "Kafka"
			}
			got = append(got, name)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("LAPSE_PG=%q fetches %q, want %s", value, got, want)
		}
	}
}

func TestOfDebeziumTheErrorSpeaksOfTheBenchmark(t *testing.T) {
	r := newRepository(t)
	s := r.server(t.TempDir())
	r.Close()
	err := fetchMissing(t.Context(), []server{s}, adviceForDebezium)
	if err == nil || !strings.Contains(err.Error(), "make debezium") || !strings.Contains(err.Error(), "make bench-slot") || strings.Contains(err.Error(), "LAPSE_PG") {
		t.Errorf("got %v", err)
	}
}

func TestWithoutANetworkOrAToolTheErrorSaysWhatToDo(t *testing.T) {
	r := newRepository(t)
	s := r.server(t.TempDir())
	r.Close()
	err := fetchMissing(t.Context(), []server{s}, adviceForServers)
	if err == nil {
		t.Fatal("fetched from nowhere")
	}
	for _, want := range []string{"fetch " + s.release, "connection refused", "make servers", "LAPSE_SERVERS", "LAPSE_PG", "/usr/lib/postgresql"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	s = kafka(t.TempDir())
	err = fetchMissing(t.Context(), []server{s}, adviceForServers)
	if err == nil || !strings.Contains(err.Error(), "mvn is missing, so "+s.release) || !strings.Contains(err.Error(), "apt-get install -y maven") {
		t.Errorf("without mvn: %v", err)
	}
}

// Without Maven, or with the address of a repository, PostgreSQL's jar is asked for by HTTP, and its sum is checked all the same.
func TestPostgreSQLIsFetchedWithoutMaven(t *testing.T) {
	r := newRepository(t)
	bin := t.TempDir()
	for _, tool := range []string{"tar", "xz"} {
		path, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	t.Setenv(repositoryURL, r.URL)
	s := r.server(t.TempDir())
	r.half.Store(true)
	if err := fetchMissing(t.Context(), []server{s}, adviceForServers); err == nil || servers.Complete(s.folder, s.release) {
		t.Errorf("half of it: %v", err)
	}
	r.half.Store(false)
	if err := fetchMissing(t.Context(), []server{s}, adviceForServers); err != nil || !servers.Complete(s.folder, s.release) {
		t.Errorf("all of it: %v", err)
	}
	other := postgres(t.TempDir(), servers.PostgresPin{Major: 18, Version: "18.6", SHA256: map[string]string{runtime.GOARCH: strings.Repeat("0", 64)}})
	if err := fetchMissing(t.Context(), []server{other}, adviceForServers); err == nil || !strings.Contains(err.Error(), "pinned is") {
		t.Errorf("of another sum: %v", err)
	}
	if err := fetchMissing(t.Context(), []server{s, kafka(t.TempDir())}, adviceForServers); err == nil || !strings.Contains(err.Error(), "mvn is missing") {
		t.Errorf("Kafka without Maven: %v", err)
	}
}
