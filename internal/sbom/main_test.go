package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// Of this test's own program: every module that is linked into it, each once, and Go's library.
func TestEveryModuleOfAProgramIsInItsBill(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1700000000, 0)
	b, err := billOf(text, info, "1.2.3", at)
	if err != nil {
		t.Fatal(err)
	}
	urls := map[string]int{}
	for _, c := range b.Components {
		urls[c.PackageURL]++
	}
	for _, module := range info.Deps {
		if urls["pkg:golang/"+module.Path+"@"+module.Version] != 1 {
			t.Errorf("%s is in the bill %d times", module.Path, urls["pkg:golang/"+module.Path+"@"+module.Version])
		}
	}
	if len(b.Components) != len(info.Deps)+1 || urls["pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go")] != 1 || len(info.Deps) == 0 {
		t.Errorf("the bill has %d components, the program %d modules", len(b.Components), len(info.Deps))
	}
	if got := b.Dependencies[0]; got.Ref != b.Metadata.Component.Ref || len(got.DependsOn) != len(b.Components) {
		t.Errorf("what it depends on: %+v", got)
	}
	again, err := billOf(text, info, "1.2.3", at)
	if err != nil {
		t.Fatal(err)
	}
	first, err := json.Marshal(b)
	second, err2 := json.Marshal(again)
	if err != nil || err2 != nil || !slices.Equal(first, second) {
		t.Errorf("two bills of one program differ: %v, %v", err, err2)
	}
	text = append(text, 0)
	if other, err := billOf(text, info, "1.2.3", at); err != nil || other.Serial == b.Serial {
		t.Errorf("another program has the same bill: %v", err)
	}
}

// A module that nobody can check is refused: one that was replaced by a folder.
func TestAModuleWithoutASumIsRefused(t *testing.T) {
	t.Parallel()
	for _, sum := range []string{"", "h1:", "h1:AAAA"} {
		_, err := billOf(nil, &debug.BuildInfo{Deps: []*debug.Module{{Path: "a", Version: "v1.0.0", Sum: sum}}}, "1.2.3", time.Unix(0, 0))
		if err == nil || !strings.Contains(err.Error(), "module a has no sum") {
			t.Errorf("%q: %v", sum, err)
		}
	}
}
