package audit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/internal/kafkatest"
	"lapse/replication"
)

// typedTable makes a table with a key column for each value, and one row.
func (r *rig) typedTable(t *testing.T, conn *pgx.Conn, table string, values []evidencetest.RecordedValue) {
	t.Helper()
	var columns, names, literals []string
	for i, v := range values {
		name := fmt.Sprintf(`"Column %d"`, i)
		names = append(names, name)
		columns = append(columns, name+" "+v.Type)
		literals = append(literals, fmt.Sprintf("'%s'", strings.ReplaceAll(v.Text, "'", "''")))
	}
	keys := strings.Join(names, ", ")
	r.db.Exec(t, fmt.Sprintf(`create table "%s" (%s, primary key (%s))`, table, strings.Join(columns, ", "), keys))
	if err := publish(t.Context(), conn, replication.Join, `"`+table+`"`); err != nil {
		t.Fatal(err)
	}
	r.db.Exec(t, fmt.Sprintf(`insert into "%s" values (%s)`, table, strings.Join(literals, ", ")))
}

// All types, from a real server through the auditor and a real broker, in each of the formats.
func TestEveryTypeFromAServerIsInEachFormatWhatItIs(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		values, conn := evidencetest.ReadRecorded(t).Values, r.db.Connect(t)
		r.db.Exec(t, `create type mood as enum ('sad', 'ok', 'O''Hara, "x"'); create type pair as (a int, b text);
			create domain small as int4; create domain word as text; create domain cents as numeric(10,2)`)
		var tables []string
		tableOf := map[string][]evidencetest.RecordedValue{}
		for part := range slices.Chunk(values, 30) { // a key has at most 32 columns
			name := fmt.Sprintf("Types %d", len(tables))
			r.typedTable(t, conn, name, part)
			tables, tableOf[fmt.Sprintf("public.%q", name)] = append(tables, name), part
		}
		seen := map[[2]int64]bool{} // by partition and offset
		for _, format := range []string{evidence.FormatSpanner, evidence.FormatDebezium, evidence.FormatCloudEvents} {
			for _, table := range tables {
				r.db.Exec(t, fmt.Sprintf(`create temporary table again as select * from "%s"; delete from "%[1]s"; insert into "%[1]s" select * from again; drop table again`, table))
			}
			r.settings.Chosen.Format = format
			r.once(t)
			var told []string
			for _, e := range r.read(t, r.settings.User) {
				at := [2]int64{int64(e.Partition), e.Offset}
				if !seen[at] {
					table := e.Header(evidence.HeaderTable)
					told = append(told, table)
					checkTyped(t, format, e, tableOf[table])
				}
				seen[at] = true
			}
			if slices.Sort(told); !slices.Equal(told, slices.Sorted(maps.Keys(tableOf))) {
				t.Errorf("%s: events of %v, want one of each of %d tables", format, told, len(tables))
			}
		}
	})
}

// checkTyped wants the event of a deleted row to have these values.
func checkTyped(t *testing.T, format string, e kafkatest.Record, values []evidencetest.RecordedValue) {
	t.Helper()
	type mod struct{ Keys map[string]string }
	var event struct {
		Mods   []mod
		Data   struct{ Mods []mod }
		Before map[string]json.RawMessage
	}
	if err := json.Unmarshal(e.Value, &event); err != nil {
		t.Fatal(err)
	}
	schema := map[string]string{evidence.FormatSpanner: "event", evidence.FormatDebezium: "event-debezium", evidence.FormatCloudEvents: "event-cloudevents"}[format]
	if err := evidencetest.Schema(t, schema).Validate(evidencetest.ParseJSON(t, e.Value)); err != nil {
		t.Errorf("%s: %v", e.Value, err)
	}
	for i, v := range values {
		name := fmt.Sprintf("Column %d", i)
		var got, want any
		switch format {
		case evidence.FormatSpanner:
			got, want = event.Mods[0].Keys[name], v.Text
		case evidence.FormatCloudEvents:
			got, want = event.Data.Mods[0].Keys[name], v.Text
		default:
			got, want = evidencetest.Exactly(t, event.Before[name]), evidencetest.Exactly(t, v.Want())
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s of type %s is %v, want %v", format, v.Text, v.Type, got, want)
		}
	}
}
