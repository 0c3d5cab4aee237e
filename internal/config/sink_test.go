package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/config"
)

func TestTheSinkIsKafkaOrAFolder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, folder, fault string
		partitions          int
	}{
		{"sink: kafka", "", "", 6},
		{"sink: dir:/var/lib/lapse", "/var/lib/lapse", "", 1},
		{"sink: dir:/var/lib/lapse\ntopics: { partitions: 3 }", "/var/lib/lapse", "", 3},
		{"sink: dir:sink", "DIR/sink", "", 1},
		{"sink: 'dir:'", "", "is no sink", 0},
		{"sink: /var/lib/lapse", "", "want kafka, or dir:", 0},
	} {
		path := filepath.Join(t.TempDir(), "lapse.yaml")
		if err := os.WriteFile(path, []byte("database: postgres://lapse@db/app\n"+c.text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := config.Load(path, config.Overrides{}, func(string) (string, bool) { return "", false })
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%q: %v", c.text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		want := strings.Replace(c.folder, "DIR", filepath.Dir(path), 1)
		if s.Folder != want || s.Topics.Partitions != c.partitions {
			t.Errorf("%q: folder %q, %d partitions", c.text, s.Folder, s.Topics.Partitions)
		}
		if err := s.RequireSink(); (err == nil) != (want != "") {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}
