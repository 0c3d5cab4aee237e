package manifests

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// project reads docker-compose.yml as docker compose does.
func project(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../../../docker-compose.yml"}, cli.WithProfiles(profiles), cli.WithName("lapse"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWithoutAProfileThereIsWhatALapseRunsAgainst(t *testing.T) {
	if names := project(t).ServiceNames(); !slices.Equal(names, []string{"kafka", "postgres"}) {
		t.Errorf("docker compose up starts %v", names)
	}
}

func TestTheComposeFileIsWhole(t *testing.T) {
	p := project(t, "all")
	if len(p.Services) != 9 {
		t.Errorf("it has %d services: %v", len(p.Services), p.ServiceNames())
	}
	for name, s := range p.Services {
		if _, tag, tagged := strings.Cut(s.Image, ":"); !tagged || tag == "latest" {
			t.Errorf("%s has the image %s: which one is that tomorrow?", name, s.Image)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s is open to %q", name, port.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
					t.Errorf("%s mounts %s, read-only %t: %v", name, v.Source, v.ReadOnly, err)
				}
			}
		}
		for needed, how := range s.DependsOn {
			on := p.Services[needed]
			if how.Condition == types.ServiceConditionHealthy && on.HealthCheck == nil {
				t.Errorf("%s waits until %s is healthy, which never says so", name, needed)
			}
		}
		if s.Image == "lapse:try" && (!s.ReadOnly || s.User != "" || s.Build == nil) {
			t.Errorf("%s does not run as the image is meant to", name)
		}
	}
}
