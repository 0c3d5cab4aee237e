package manifests

import (
	"bytes"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// beside finds the schemas that one names by their address, in the folder of cyclonedx-go that has them all.
type beside string

func (b beside) Load(address string) (any, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	name := path.Base(u.Path)
	if name == "jsf-0.82.schema.json" {
		name = "jsf-0.82.schemax.json" // as cyclonedx-go calls it
	}
	file, err := os.Open(filepath.Join(string(b), name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return jsonschema.UnmarshalJSON(file)
}

// The bill of materials that a release has, here of the program that makes it, is what CycloneDX's schema and library take.
func TestTheBillOfMaterialsIsCycloneDX(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "sbom")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./internal/sbom")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, "-version", "1.2.3", program)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	made, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		t.Fatalf("%v\n%s", err, failed.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(beside(filepath.Join(strings.TrimSpace(string(folder)), "schema")))
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text []byte) error {
		bill, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return err
		}
		return schema.Validate(bill)
	}
	if err := check(made); err != nil {
		t.Error(err)
	}
	if err := check(bytes.Replace(made, []byte(`"SHA-256"`), []byte(`"SHA-1000"`), 1)); err == nil {
		t.Error("the schema takes a hash that there is not")
	}
	var bill cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(made), cyclonedx.BOMFileFormatJSON).Decode(&bill); err != nil || bill.Components == nil || len(*bill.Components) < 2 {
		t.Errorf("it decodes to %+v, %v", bill.Components, err)
	}
}
