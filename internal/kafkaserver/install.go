package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	archive string // loaded classes; need not be there
}

// Find finds the Kafka that make servers fetched, and java. The error wraps ErrNotInstalled if one is missing.
func Find() (Install, error) {
	dir, err := servers.Dir()
	if err != nil {
		return Install{}, err
	}
	if !servers.Complete(servers.KafkaDir(dir), servers.KafkaRelease()) {
		return Install{}, fmt.Errorf("%s is %w: run make servers", servers.KafkaRelease(), ErrNotInstalled)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return Install{}, fmt.Errorf("java, which Kafka runs on, is %w: apt-get install -y default-jre-headless", ErrNotInstalled)
	}
	return Install{
		Version: servers.KafkaVersion,
		LibDir:  filepath.Join(servers.KafkaDir(dir), "libs"),
		Java:    java,
		archive: filepath.Join(dir, "kafka-classes.jsa"),
	}, nil
}

// ArchiveClasses lets a broker run once and keeps the classes that it has loaded, so that the next ones start in half
// the time and with a third of the processor (1.4 s and 1.4 s, from 2.9 s and 4 s). It does nothing if that was done
// before. Java ignores an archive made by another Java.
func ArchiveClasses(ctx context.Context) error {
	install, err := Find()
	if err != nil {
		return err
	}
	if _, err := os.Stat(install.archive); err == nil {
		return nil
	}
	partial := install.archive + ".partial"
	broker, err := Start(ctx, Options{Java: []string{"-XX:ArchiveClassesAtExit=" + partial}})
	if err == nil {
		err = errors.Join(broker.Stop(ctx), broker.Close())
	}
	if err == nil {
		err = os.Rename(partial, install.archive)
	}
	if err != nil {
		return fmt.Errorf("archive Kafka's classes: %w", err)
	}
	return nil
}
