package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
)

// Where an artifact of one file comes from without Maven.
const (
	mavenCentral  = "https://repo1.maven.org/maven2"
	repositoryURL = "LAPSE_MAVEN_URL" // names another one, and has it asked though Maven is here
)

// download fetches one artifact, named as Maven does, from a repository. Whether it is the right one its sum says.
func download(ctx context.Context, repository, artifact, into string) (err error) {
	part := strings.Split(artifact, ":")
	if len(part) != 4 {
		return fmt.Errorf("download %s: want group:artifact:version:type", artifact)
	}
	url := strings.TrimRight(repository, "/") + "/" +
		path.Join(strings.ReplaceAll(part[0], ".", "/"), part[1], part[2], part[1]+"-"+part[2]+"."+part[3])
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("download %s: %s", url, answer.Status)
	}
	file, err := os.Create(into)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, answer.Body)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("download %s: %w", url, err)
	}
	return nil
}
