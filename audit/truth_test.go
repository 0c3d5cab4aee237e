package audit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// truth is what was really deleted: in the database that goes on, and in pasts that were given up after their events were
// published. Rows are named by key and cause, and counted, since a row that is back after a restore may go again.
type truth struct {
	lives map[string]int
	lost  map[string]int
}

// told is what topics and log say, as a consumer reads them: what comes before a rewind and above its fork never happened.
type told struct {
	lives   map[string]int
	void    map[string]int
	markers []string // of each partition, the same
	log     []string // the log's
}

// place is where a record is in the order of all.
type place struct {
	reach   evidence.Reach
	ordinal string
}

func (p place) before(other place) bool {
	if c := p.reach.Compare(other.reach); c != 0 {
		return c < 0
	}
	return p.ordinal < other.ordinal
}

// happening is an event of either kind, or a record of the log, as far as the truth needs it.
type happening struct {
	Kind     string         `json:"kind"` // the log's
	History  uint32         `json:"history"`
	Timeline uint32         `json:"timeline"`
	Reached  string         `json:"reached"`
	More     bool           `json:"more"`
	ID       string         `json:"event_id"`
	Table    string         `json:"table_name"`
	ModType  string         `json:"mod_type"`
	Reason   string         `json:"reason"`
	From     *reached       `json:"from"`
	To       *reached       `json:"to"`
	Observed []observed     `json:"observed"`
	Lapse    happeningLapse `json:"lapse"`
}

type happeningLapse struct {
	Cause     string   `json:"cause"`
	History   uint32   `json:"history"`
	Timeline  uint32   `json:"timeline"`
	CommitLSN string   `json:"commit_lsn"`
	Ordinal   uint32   `json:"ordinal"`
	Reason    string   `json:"reason"`
	From      *reached `json:"from"`
	To        *reached `json:"to"`
}

type observed struct {
	Cause  string `json:"cause"`
	Events int    `json:"events"`
}

type reached struct {
	History  uint32 `json:"history"`
	Timeline uint32 `json:"timeline"`
	LSN      string `json:"lsn"`
}

func reachOf(t *testing.T, history, timeline uint32, lsn string) evidence.Reach {
	t.Helper()
	r, err := evidence.ParseReach(fmt.Sprintf("%d/%d/%s", history, timeline, lsn))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *reached) reach(t *testing.T) evidence.Reach {
	t.Helper()
	return reachOf(t, r.History, r.Timeline, r.LSN)
}

// listen reads the topics and the log, and checks their order, and that each marker is in all of them once.
func (r *rig) listen(t *testing.T) *told {
	t.Helper()
	heard := &told{lives: map[string]int{}, void: map[string]int{}}
	for i, topic := range []string{r.settings.System, r.settings.User} {
		byPartition := map[int32][]kafkatest.Record{}
		for _, record := range r.read(t, topic) {
			byPartition[record.Partition] = append(byPartition[record.Partition], record)
		}
		for partition := range int32(partitions) {
			markers := r.listenTo(t, heard, topic, byPartition[partition])
			if i == 0 && partition == 0 {
				heard.markers = markers
			}
			if !slices.Equal(markers, heard.markers) {
				t.Errorf("%s/%d has the markers %v, another partition %v", topic, partition, markers, heard.markers)
			}
		}
	}
	r.listenToLog(t, heard)
	if !slices.Equal(heard.log, heard.markers) {
		t.Errorf("the log has the markers %v, the topics %v", heard.log, heard.markers)
	}
	return heard
}

func (r *rig) listenTo(t *testing.T, heard *told, topic string, records []kafkatest.Record) (markers []string) {
	t.Helper()
	type row struct {
		at  evidence.Reach
		key string
	}
	var rows []row
	var last place
	for _, record := range records {
		var e happening
		if err := json.Unmarshal(record.Value, &e); err != nil {
			t.Fatalf("%v in %s", err, record.Value)
		}
		if record.Header("lapse-op") == "" {
			continue // somebody else's
		}
		at := place{reachOf(t, e.Lapse.History, e.Lapse.Timeline, e.Lapse.CommitLSN), fmt.Sprintf("%010d", e.Lapse.Ordinal)}
		if !last.before(at) {
			t.Errorf("%s/%d: %v comes after %v", topic, record.Partition, at, last)
		}
		last = at
		switch e.ModType {
		case "GAP", "REWIND":
			markers = append(markers, strings.ToLower(e.ModType)+" "+e.Lapse.Reason+" "+
				e.Lapse.From.reach(t).String()+" "+e.Lapse.To.reach(t).String())
			if e.ModType == "REWIND" {
				fork := e.Lapse.From.reach(t)
				rows = slices.DeleteFunc(rows, func(r row) bool {
					dead := r.at.Compare(fork) >= 0 // a commit that is not above the fork begins below it
					if dead {
						heard.void[r.key]++
					}
					return dead
				})
			}
		default:
			rows = append(rows, row{at.reach, rowKey(e.Table, string(record.Key)) + " " + e.Lapse.Cause})
			if (topic == r.settings.System) != (e.Lapse.Cause == "system") {
				t.Errorf("an event of cause %s is in %s", e.Lapse.Cause, topic)
			}
		}
	}
	for _, row := range rows {
		heard.lives[row.key]++
	}
	return markers
}

func (r *rig) listenToLog(t *testing.T, heard *told) {
	t.Helper()
	type summary struct {
		at     evidence.Reach
		events map[string]int
	}
	var lives []summary
	var last evidence.Reach
	more := false
	for i, record := range r.read(t, r.settings.Log) {
		var l happening
		if err := json.Unmarshal(record.Value, &l); err != nil {
			t.Fatal(err)
		}
		if l.Kind == "" {
			continue // somebody else's
		}
		at := reachOf(t, l.History, l.Timeline, l.Reached)
		if i > 1 && at.Compare(last) <= 0 && !((more || l.Kind == "route") && at == last) {
			t.Errorf("the log's record %d reaches %s, after one that reached %s", i, at, last)
		}
		last, more = at, l.More
		s := summary{at, map[string]int{}}
		for _, o := range l.Observed {
			s.events[o.Cause] += o.Events
		}
		if l.Kind == "gap" || l.Kind == "rewind" {
			heard.log = append(heard.log, l.Kind+" "+l.Reason+" "+l.From.reach(t).String()+" "+l.To.reach(t).String())
		}
		if l.Kind == "rewind" {
			fork := l.From.reach(t)
			lives = slices.DeleteFunc(lives, func(s summary) bool { return s.at.Compare(fork) > 0 })
		}
		lives = append(lives, s)
	}
	logged := map[string]int{}
	for _, s := range lives {
		for cause, n := range s.events {
			logged[cause] += n
		}
	}
	if published := byCause(heard.lives); !maps.Equal(logged, published) {
		t.Errorf("the log counts %v, the topics have %v", logged, published)
	}
}

// byCause counts rows, or what was said of them.
func byCause(rows map[string]int) map[string]int {
	counts := map[string]int{}
	for key, n := range rows {
		counts[key[strings.LastIndexByte(key, ' ')+1:]] += n
	}
	return counts
}

// matches holds what is told against the truth, and shows both in numbers.
func (w *truth) matches(t *testing.T, heard *told) {
	t.Helper()
	for _, part := range []struct {
		name       string
		want, have map[string]int
	}{{"in the database that goes on", w.lives, heard.lives}, {"in pasts that were given up", w.lost, heard.void}} {
		missing, more := 0, 0
		for key, n := range part.want {
			missing += max(0, n-part.have[key])
		}
		for key, n := range part.have {
			more += max(0, n-part.want[key])
		}
		t.Logf("%s: %d rows deleted %v, %d events %v; missing %d, twice or unknown %d", part.name,
			sum(part.want), byCause(part.want), sum(part.have), byCause(part.have), missing, more)
		if missing > 0 || more > 0 {
			t.Errorf("%s: missing %d, twice or unknown %d", part.name, missing, more)
		}
	}
	t.Logf("markers: %v", heard.markers)
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// wantMarkers wants these kinds of markers, in this order.
func (heard *told) wantMarkers(t *testing.T, kinds ...string) {
	t.Helper()
	var found []string
	for _, marker := range heard.markers {
		fields := strings.Fields(marker)
		found = append(found, fields[0]+" "+fields[1])
	}
	if !slices.Equal(found, kinds) {
		t.Errorf("markers %v, want %v", found, kinds)
	}
}

// lostCounts is the truth as in an examination.
func lostCounts(events map[string]uint64) map[string]int {
	counts := map[string]int{}
	for cause, n := range events {
		counts[cause] = int(n)
	}
	return counts
}

func lsnOf(t *testing.T, text string) schemas.LSN {
	t.Helper()
	lsn, err := schemas.ParseLSN(text)
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}
