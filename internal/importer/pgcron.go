package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/planner/policyfile"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// cronJob is a row of cron.job, with its columns' names.
type cronJob struct {
	ID       int64  `json:"jobid"`
	Name     string `json:"jobname"`
	Schedule string `json:"schedule"`
	Command  string `json:"command"`
	Database string `json:"database"`
	User     string `json:"username"`
	Active   *bool  `json:"active"`
}

// cronCatalog reads the jobs of a database with pg_cron. Row security shows each role only its own jobs.
func cronCatalog(ctx context.Context, s *Server) (items []Item, err error) {
	var jobs []cronJob
	zone := ""
	err = s.undone(ctx, func(tx pgx.Tx) error {
		if err := s.row(ctx, tx, `select set_config('row_security', 'on', true), coalesce(current_setting('cron.timezone', true), '')`).Scan(nil, &zone); err != nil {
			return err
		}
		// A table made by an older version has no jobname.
		jobs, err = collect[cronJob](ctx, tx, `
			select j.jobid::bigint, coalesce(to_jsonb(j) ->> 'jobname', ''), j.schedule::text, j.command::text, j.database::text, j.username::text, j.active
			  from cron.job j
			 order by 1`)
		return err
	})
	var server *pgconn.PgError
	if errors.As(err, &server) && (server.Code == schemas.SQLStateUndefinedTable || server.Code == schemas.SQLStateInvalidSchemaName) {
		return nil, fmt.Errorf("database %s has no table cron.job: name the database that pg_cron is installed in, or give its jobs as text", s.Database)
	}
	if err != nil {
		return nil, fmt.Errorf("read cron.job: %w", err)
	}
	if !s.sees {
		items = append(items, Item{Apart: true, Origin: fmt.Sprintf("Row security of cron.job shows %s its own jobs alone: import the others as their roles, or as a superuser.", s.Login)})
	}
	for _, j := range jobs {
		of, err := s.job(ctx, &j, zone)
		if err != nil {
			return nil, err
		}
		items = append(items, of...)
	}
	return items, nil
}

// cronText reads calls of cron.schedule, or rows of cron.job as JSON.
func cronText(ctx context.Context, s *Server, text string) (items []Item, err error) {
	jobs, items, err := readJobs(text)
	if err != nil {
		return nil, err
	}
	from := ""
	for i := range jobs {
		if jobs[i].Database != jobs[0].Database {
			from = ""
			break
		}
		from = jobs[i].Database
	}
	if from != "" && from != s.Database {
		items = append(items, Item{Apart: true, Origin: fmt.Sprintf("The jobs run in database %s; their tables were looked up in %s.", from, s.Database)})
	}
	for i := range jobs {
		if jobs[i].Database == "" || from != "" {
			jobs[i].Database = s.Database
		}
		of, err := s.job(ctx, &jobs[i], "")
		if err != nil {
			return nil, err
		}
		items = append(items, of...)
	}
	return items, nil
}

func readJobs(text string) (jobs []cronJob, items []Item, err error) {
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "[") || strings.HasPrefix(trimmed, "{") {
		decoder := json.NewDecoder(strings.NewReader(text))
		for decoder.More() {
			var row json.RawMessage
			if err := decoder.Decode(&row); err != nil {
				return nil, nil, fmt.Errorf("read rows of cron.job as JSON: %w", err)
			}
			var some []cronJob
			if row[0] != '[' {
				row = json.RawMessage("[" + string(row) + "]")
			}
			if err := json.Unmarshal(row, &some); err != nil {
				return nil, nil, fmt.Errorf("read rows of cron.job as JSON: %w", err)
			}
			jobs = append(jobs, some...)
		}
		return jobs, nil, nil
	}
	return scheduled(text)
}

// scheduled finds the calls of cron.schedule and cron.schedule_in_database. A call with an argument that is not a text becomes an item.
func scheduled(text string) (jobs []cronJob, items []Item, err error) {
	tokens, ok := scan(text)
	if !ok {
		return nil, nil, errors.New("read calls of cron.schedule: the text is no SQL: a quotation mark or a comment is not closed")
	}
	for i := 0; i+3 < len(tokens); i++ {
		name := tokens[i+2].name()
		if tokens[i].name() != "cron" || !tokens[i+1].is(".") || !tokens[i+3].is("(") || name != "schedule" && name != "schedule_in_database" {
			continue
		}
		c := &clause{text: text, tokens: tokens, at: i + 4}
		inner := c.until(")")
		j, problem := call(&inner, name)
		if problem != "" {
			items = append(items, Item{Origin: "A call of cron." + name, Text: text[tokens[i].start:tokens[min(c.at, len(tokens)-1)].end], Lost: []string{problem}})
			continue
		}
		jobs = append(jobs, j)
	}
	if len(jobs)+len(items) == 0 {
		return nil, nil, errors.New("there is no call of cron.schedule in the text, and it is no JSON of rows of cron.job")
	}
	return jobs, items, nil
}

// call reads the arguments.
func call(c *clause, function string) (j cronJob, problem string) {
	names := []string{"job_name", "schedule", "command", "database", "username", "active"}
	into := map[string]*string{"job_name": &j.Name, "schedule": &j.Schedule, "command": &j.Command, "database": &j.Database, "username": &j.User}
	var positional []string
	for c.at < len(c.tokens) {
		part := c.until(",")
		c.take(",")
		label := ""
		if len(part.tokens) > 2 && (part.tokens[1].is("=>") || part.tokens[1].is(":=")) {
			label, part.tokens = part.tokens[0].name(), part.tokens[2:]
		}
		value, ok := "", len(part.tokens) > 0
		if ok {
			value, ok = part.tokens[0].value()
		}
		if len(part.tokens) == 1 && (part.tokens[0].is("true") || part.tokens[0].is("null")) {
			ok = true
		} else if cast := len(part.tokens) == 3 && part.tokens[1].is("::"); ok && len(part.tokens) != 1 && !cast {
			ok = false
		}
		switch {
		case !ok:
			return j, "an argument is not a text by itself: " + part.all()
		case label != "" && into[label] != nil:
			*into[label] = value
		case label == "":
			positional = append(positional, value)
		}
	}
	if function == "schedule" && len(positional) == 2 && j.Name == "" {
		names = names[1:]
	}
	for i, value := range positional {
		if i < len(names) && into[names[i]] != nil {
			*into[names[i]] = value
		}
	}
	if j.Schedule == "" || j.Command == "" {
		return j, "it has no schedule or no command"
	}
	return j, ""
}

// job reads one job: an item for each of its statements.
func (s *Server) job(ctx context.Context, j *cronJob, zone string) ([]Item, error) {
	origin := "A job"
	if j.ID != 0 {
		origin = fmt.Sprintf("Job %d", j.ID)
	}
	if j.Name != "" {
		origin += fmt.Sprintf(" %q", j.Name)
	}
	origin += fmt.Sprintf(", %q", j.Schedule)
	if zone != "" {
		origin += " in " + zone
	}
	user := j.User
	if user == "" {
		user = s.Login
	} else {
		origin += ", as " + user
	}
	if j.Active != nil && !*j.Active {
		origin += ", not active"
	}
	if j.Database != s.Database {
		lost := fmt.Sprintf("it runs in database %s: import it with a connection to that one, from text", j.Database)
		return []Item{{Origin: origin, Text: j.Command, Lost: []string{lost}}}, nil
	}
	set, err := s.settingsOf(ctx, user)
	if err != nil {
		return nil, err
	}
	r := &reader{server: s, settings: set}
	parts, ok := statements(j.Command)
	if !ok {
		return []Item{{Origin: origin, Text: j.Command, Lost: []string{"a quotation mark or a comment is not closed, or there is a character that SQL does not have"}}}, nil
	}
	var items []Item
	for n, part := range parts {
		some, err := r.items(ctx, part)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", origin, err)
		}
		for _, i := range some {
			if i.Origin = origin; len(parts) > 1 {
				i.Origin += fmt.Sprintf(", statement %d of %d", n+1, len(parts))
			}
			if i.Policy != nil {
				i.Policy.Name = policyName(j.Name)
				if j.Name == "" {
					i.Policy.Name = policyName(lastName(i.Policy.Table), "cron")
				}
				i.schedule(j.Schedule, zone)
			}
			items = append(items, i)
		}
	}
	return unlessSet(items), nil
}

// items makes a statement's item, or the items of the function that it calls.
func (r *reader) items(ctx context.Context, statement string) ([]Item, error) {
	items, calls, err := r.call(ctx, statement)
	if calls || err != nil {
		return items, err
	}
	i, err := r.statement(ctx, statement)
	if i == nil || err != nil {
		return nil, err
	}
	return []Item{*i}, nil
}

// unlessSet removes the policies of a job that sets or undoes something.
func unlessSet(items []Item) []Item {
	at := slices.IndexFunc(items, func(i Item) bool { return i.sets })
	if at < 0 {
		return items
	}
	for n := range items {
		if items[n].Policy != nil {
			items[n].Policy, items[n].Notes = nil, nil
			items[n].Lost = []string{"another statement of the job changes what this one means, or undoes it: " + items[at].Text}
		}
	}
	return items
}

// lastName is a table's name without its schema.
func lastName(table string) string {
	tokens, _ := scan(table)
	if len(tokens) == 0 {
		return ""
	}
	return tokens[len(tokens)-1].name()
}

var inSeconds = regexp.MustCompile(`^\s*(\d+)\s+seconds?\s*$`)

// schedule gives a policy the job's cron line, in pg_cron's zone: GMT, or that of cron.timezone.
func (i *Item) schedule(line, zone string) {
	if m := inSeconds.FindStringSubmatch(line); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
			i.Policy.Every = fmt.Sprintf("%d seconds", n)
			return
		}
	}
	if zone == "" {
		zone = utc
	}
	cron, err := schedule.ParseCron(strings.Join(strings.Fields(line), " ") + " " + zoneName(zone))
	if err != nil {
		i.Policy.Every = policyfile.DefaultEvery
		i.lose("its schedule %q is not one of Lapse, so the policy runs every hour: %v", line, err)
		return
	}
	i.Policy.Cron = &cron
}
