// Command sbom writes what is in a Go program as a CycloneDX 1.6 bill of materials, from what the linker recorded in it:
// sbom -version 1.2.3 PROGRAM > FILE. The same program gives the same bytes; SOURCE_DATE_EPOCH is its time.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

func main() {
	version := flag.String("version", "", "the release's `version`")
	flag.Parse()
	if err := write(flag.Arg(0), *version); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bill is a bill of materials.
type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []hash     `json:"hashes,omitempty"`
	PackageURL string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

func write(program, version string) error {
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read what is in %s: %w", program, err)
	}
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH is the time of the sources, in seconds: %w", err)
	}
	b, err := billOf(text, info, version, time.Unix(epoch, 0))
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(b)
}

// billOf is a program's bill: the modules that are linked into it, and Go's own library. A module's hash is go.sum's h1, which is of its files.
func billOf(program []byte, info *debug.BuildInfo, version string, at time.Time) (*bill, error) {
	sum := sha256.Sum256(program)
	main := component{
		Ref: "lapse@" + version, Type: "application", Name: "lapse", Version: version, Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "GO") || strings.HasPrefix(s.Key, "CGO") {
			main.Properties = append(main.Properties, property{"go:build:" + s.Key, s.Value})
		}
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	components := []component{{
		Ref: "pkg:golang/std@" + goVersion, Type: "library", Name: "std", Version: goVersion, PackageURL: "pkg:golang/std@" + goVersion,
	}}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		url := "pkg:golang/" + module.Path + "@" + module.Version
		c := component{Ref: url, Type: "library", Name: module.Path, Version: module.Version, PackageURL: url}
		files, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
		if err != nil || len(files) != sha256.Size {
			return nil, fmt.Errorf("module %s has no sum: %q", module.Path, module.Sum)
		}
		c.Hashes = []hash{{"SHA-256", hex.EncodeToString(files)}}
		components = append(components, c)
	}
	refs := make([]string, len(components))
	for i := range components {
		refs[i] = components[i].Ref
	}
	return &bill{
		Format: "CycloneDX", Spec: "1.6", Serial: "urn:uuid:" + uuid.NewSHA1(uuid.Nil, sum[:]).String(), Version: 1,
		Metadata:   metadata{at.UTC().Format(time.RFC3339), main},
		Components: components, Dependencies: []dependency{{main.Ref, refs}},
	}, nil
}
