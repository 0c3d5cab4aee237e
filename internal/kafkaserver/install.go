package kafkaserver

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"lapse/internal/servers"
)

// ErrNotInstalled is wrapped by what Find returns when there is no Kafka or no Java on this machine.
var ErrNotInstalled = errors.New("not installed")

// Install is the Kafka of this machine.
type Install struct {
	Version string
	LibDir  string // its jars
	Java    string // the java program
}

// Find finds the Kafka that make servers fetched, and java. The error wraps ErrNotInstalled if one is missing.
func Find() (Install, error) {
	dir, err := servers.Dir()
	if err != nil {
		return Install{}, err
	}
	if !servers.Complete(servers.KafkaDir(dir), servers.KafkaRelease()) {
		return Install{}, fmt.Errorf("Kafka %s is %w: run make servers", servers.KafkaVersion, ErrNotInstalled)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return Install{}, fmt.Errorf("java, which Kafka runs on, is %w: apt-get install -y default-jre-headless", ErrNotInstalled)
	}
	return Install{Version: servers.KafkaVersion, LibDir: filepath.Join(servers.KafkaDir(dir), "libs"), Java: java}, nil
}
