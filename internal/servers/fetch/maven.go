package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"lapse/internal/servers"
)

// copyPlugin is pinned so that every machine resolves artifacts the same way.
const copyPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

//go:embed kafka-pom.xml
var kafkaPOM []byte

//go:embed connect-pom.xml
var connectPOM []byte

//go:embed debezium-pom.xml
var debeziumPOM []byte

// unpackKafka copies the broker's jars into libs/.
func unpackKafka(ctx context.Context, into string) error {
	return copyDependencies(ctx, kafkaPOM, into, "libs")
}

// unpackDebezium copies Kafka Connect's jars into connect/ and the connector's into plugins/postgres/.
func unpackDebezium(ctx context.Context, into string) error {
	if err := copyDependencies(ctx, connectPOM, into, "connect"); err != nil {
		return err
	}
	return copyDependencies(ctx, debeziumPOM, into, "plugins/postgres")
}

// copyDependencies copies all jars that a POM asks for into a folder.
func copyDependencies(ctx context.Context, content []byte, into, folder string) error {
	pom := filepath.Join(into, "pom.xml")
	if err := os.WriteFile(pom, content, 0o644); err != nil {
		return err
	}
	return maven(ctx, into, copyPlugin+":copy-dependencies", "-f", pom, "-DoutputDirectory="+filepath.Join(into, folder))
}

// postgresArtifact is the Maven name of a release, built for this machine's architecture.
func postgresArtifact(pin servers.PostgresPin) (name, file string, err error) {
	arch := map[string]string{"amd64": "amd64", "arm64": "arm64v8"}[runtime.GOARCH]
	if runtime.GOOS != "linux" || pin.SHA256[runtime.GOARCH] == "" {
		return "", "", fmt.Errorf("there is no build for %s/%s; install it from your system's packages, or leave it out with LAPSE_PG",
			runtime.GOOS, runtime.GOARCH)
	}
	artifact := "embedded-postgres-binaries-linux-" + arch
	return "io.zonky.test.postgres:" + artifact + ":" + pin.Version + ".0:jar", artifact + "-" + pin.Version + ".0.jar", nil
}

// unpackPostgres fetches the jar, checks it against its pinned sum and unpacks the one archive in it.
func unpackPostgres(ctx context.Context, pin servers.PostgresPin, into string) error {
	name, file, err := postgresArtifact(pin)
	if err != nil {
		return err
	}
	_, noMaven := exec.LookPath("mvn")
	if repository := os.Getenv(repositoryURL); repository != "" || noMaven != nil {
		err = download(ctx, cmp.Or(repository, mavenCentral), name, filepath.Join(into, file))
	} else {
		err = maven(ctx, into, copyPlugin+":copy", "-Dartifact="+name, "-DoutputDirectory="+into)
	}
	if err != nil {
		return err
	}
	jar := filepath.Join(into, file)
	if err := checkSum(jar, pin.SHA256[runtime.GOARCH]); err != nil {
		return err
	}
	if err := unpackJar(ctx, jar, into); err != nil {
		return err
	}
	return os.Remove(jar)
}

func maven(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "mvn", append([]string{"--batch-mode", "--no-transfer-progress", "--quiet"}, args...)...)
	cmd.Dir = dir
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, output.String())
	}
	return nil
}

func checkSum(path, want string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		return fmt.Errorf("%s has SHA-256 %s, pinned is %s: not the release that the tests were written for", filepath.Base(path), got, want)
	}
	return nil
}

// unpackJar feeds the .txz in the jar to tar.
func unpackJar(ctx context.Context, jar, into string) (err error) {
	archive, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	for _, entry := range archive.File {
		if !strings.HasSuffix(entry.Name, ".txz") {
			continue
		}
		content, err := entry.Open()
		if err != nil {
			return err
		}
		tar := exec.CommandContext(ctx, "tar", "-xJf", "-", "-C", into, "--no-same-owner")
		tar.Stdin = content
		output, err := tar.CombinedOutput()
		if err != nil {
			return errors.Join(fmt.Errorf("unpack %s: %w\n%s", entry.Name, err, output), content.Close())
		}
		return content.Close()
	}
	return fmt.Errorf("%s holds no .txz", jar)
}
