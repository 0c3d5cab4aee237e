package servers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// KafkaVersion is the Apache Kafka release that fetch/kafka-pom.xml names. A test holds the two together.
const KafkaVersion = "4.3.1"

// DebeziumVersion is the release of Debezium's connector that fetch/debezium-pom.xml names. A test holds the two together.
const DebeziumVersion = "3.7.0.Final"

// PostgresPin is one PostgreSQL release to fetch.
type PostgresPin struct {
	Major   int
	Version string
	// SHA256 of the archive, by GOARCH. An architecture that is not here has no build of this release.
	SHA256 map[string]string
}

// PostgresPins are the PostgreSQL releases that Lapse is tested on, oldest first.
func PostgresPins() []PostgresPin {
	return []PostgresPin{
		{14, "14.24", map[string]string{
			"amd64": "2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4",
		}},
		{15, "15.19", map[string]string{
			"amd64": "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f",
			"arm64": "95baf4bd4af31b91b3050118df59388ed0064756b556b850669e0300aa7b9911",
		}},
		{16, "16.15", map[string]string{
			"amd64": "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2",
			"arm64": "f846a9989d686b7977d6eca9bc9d8b2b69e3f70c7eb60e032197d9c574a6136c",
		}},
		{17, "17.11", map[string]string{
			"amd64": "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d",
			"arm64": "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b",
		}},
		{18, "18.6", map[string]string{
			"amd64": "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1",
			"arm64": "5f54e016723afa6213925a8acb939bac52944b1d348f65c7a20f0cd2928c31be",
		}},
	}
}

// PostgresRelease is how the stamp names a release.
func PostgresRelease(pin PostgresPin) string {
	return "PostgreSQL " + pin.Version + " for " + runtime.GOARCH
}

// KafkaRelease is how the stamp names the broker.
func KafkaRelease() string { return "Kafka " + KafkaVersion }

// DebeziumRelease is how the stamp names Debezium, with the Kafka Connect that it runs in.
func DebeziumRelease() string {
	return "Debezium " + DebeziumVersion + " in Kafka Connect " + KafkaVersion
}

// Dir is the folder that holds the fetched servers: $LAPSE_SERVERS, or .servers beside the go.mod above the working
// directory. The folder itself need not exist.
func Dir() (string, error) {
	if dir := os.Getenv("LAPSE_SERVERS"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find servers: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".servers"), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("find servers: no go.mod above the working directory; set LAPSE_SERVERS to the folder that make servers filled")
		}
		dir = up
	}
}

// PostgresDir is the folder of one major version below dir.
func PostgresDir(dir string, major int) string {
	return filepath.Join(dir, "pg", strconv.Itoa(major))
}

// KafkaDir is the folder of the broker below dir.
func KafkaDir(dir string) string {
	return filepath.Join(dir, "kafka")
}

// DebeziumDir is the folder of Debezium and Kafka Connect below dir.
func DebeziumDir(dir string) string {
	return filepath.Join(dir, "debezium")
}

// WantedMajors reads a value of $LAPSE_PG, such as "15,18". An empty one means every pinned major version.
func WantedMajors(value string) ([]int, error) {
	var pinned, wanted []int
	for _, pin := range PostgresPins() {
		pinned = append(pinned, pin.Major)
	}
	if strings.TrimSpace(value) == "" {
		return pinned, nil
	}
	for word := range strings.SplitSeq(value, ",") {
		major, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || major < pinned[0] || major > pinned[len(pinned)-1] {
			return nil, fmt.Errorf("LAPSE_PG=%q: %q is not one of %v", value, word, pinned)
		}
		wanted = append(wanted, major)
	}
	return wanted, nil
}

// stampName is written last into a server's folder.
const stampName = "COMPLETE"

// Stamp declares the folder complete: it holds release, and no file is missing from here on.
func Stamp(folder, release string) error {
	files, err := countFiles(folder)
	if err != nil {
		return fmt.Errorf("stamp %s: %w", folder, err)
	}
	line := fmt.Sprintf("%s, %d files\n", release, files)
	if err := os.WriteFile(filepath.Join(folder, stampName), []byte(line), 0o644); err != nil {
		return fmt.Errorf("stamp %s: %w", folder, err)
	}
	return nil
}

// Complete says whether the folder holds release and every file that was there when it was stamped.
func Complete(folder, release string) bool {
	stamp, err := os.ReadFile(filepath.Join(folder, stampName))
	if err != nil {
		return false
	}
	files, err := countFiles(folder)
	return err == nil && string(stamp) == fmt.Sprintf("%s, %d files\n", release, files)
}

func countFiles(folder string) (int, error) {
	files := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && entry.Name() != stampName {
			files++
		}
		return err
	})
	return files, err
}
