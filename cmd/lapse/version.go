package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// The linker sets version and commit (see the Makefile). Otherwise the program uses Go's own build information.
var version, commit string

// versions lists the formats that this program reads and writes.
type versions struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Changed bool   `json:"changed,omitempty"` // the sources differed from the commit
	Go      string `json:"go"`
	Catalog int    `json:"catalog"` // of schema "lapse" in the database
	Event   int    `json:"event"`
	Log     int    `json:"log"` // records of lapse.log
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and the versions of the formats",
		Long: `Prints the version and the commit that this lapse was built from, and the versions of what it writes: a database's catalog, the
events, and the records of the log. "lapse --version" prints the same.`,
		Example: "  lapse version --json",
		Args:    noArgs,
		RunE: a.does(func(*cobra.Command, []string) error {
			v := readVersions()
			if a.asJSON {
				return a.printJSON(v)
			}
			_, err := fmt.Fprint(a.out, v.String())
			return err
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

// String lists the versions in lines.
func (v *versions) String() string {
	commit := v.Commit
	if v.Changed {
		commit += " (changed)"
	}
	return fmt.Sprintf("lapse %s\ncommit   %s\nbuilt by %s\ncatalog  %d\nevent    %d\nlog      %d\n", v.Version, commit, v.Go, v.Catalog, v.Event, v.Log)
}

func readVersions() *versions {
	v := &versions{Version: "unknown", Commit: commit, Catalog: schemas.Version, Event: evidence.EventSchema, Log: evidence.LogSchema}
	build, ok := debug.ReadBuildInfo()
	if ok {
		v.Version, v.Go = build.Main.Version, build.GoVersion
	}
	if version != "" {
		v.Version = version
	}
	if !ok || commit != "" {
		return v
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Commit = setting.Value
		case "vcs.modified":
			v.Changed = setting.Value == "true"
		}
	}
	return v
}
