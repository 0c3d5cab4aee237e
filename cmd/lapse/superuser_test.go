package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/audit"
	"lapse/internal/pgtest"
	"lapse/replication"
)

// desk runs commands in this process, with an environment of its own.
type desk struct {
	t   *testing.T
	env map[string]string
}

// newDesk has keys, and works on the database that url names.
func newDesk(t *testing.T, db *pgtest.DB, url string) *desk {
	t.Helper()
	d := &desk{t: t, env: map[string]string{
		"LAPSE_DATABASE_URL": db.URL, "LAPSE_KAFKA_BROKERS": "127.0.0.1:1", "LAPSE_KEYS": filepath.Join(t.TempDir(), "keys"),
	}}
	if code, _, log := d.lapse("init", "--keys", d.env["LAPSE_KEYS"]); code != exitDone {
		t.Fatalf("lapse init: %s", log)
	}
	d.env["LAPSE_DATABASE_URL"] = url
	return d
}

func (d *desk) app(out, log *bytes.Buffer) *app {
	return &app{in: strings.NewReader(""), out: out, err: log, env: func(name string) (string, bool) {
		value, set := d.env[name]
		if name == "LAPSE_STATE" && !set {
			return d.t.TempDir(), true // and not the machine's
		}
		return value, set
	}}
}

func (d *desk) lapse(args ...string) (code int, out, log string) {
	var results, errs bytes.Buffer
	code = execute(d.t.Context(), args, d.app(&results, &errs))
	if err := checkEnvelope(args, results.String()); err != nil {
		d.t.Errorf("lapse %s: %v", strings.Join(args, " "), err)
	}
	return code, results.String(), errs.String()
}

// everyCommand lists the command lines that have something to do, by their commands.
func everyCommand(cmd *cobra.Command) (all []string) {
	for _, c := range cmd.Commands() {
		if c.HasSubCommands() {
			all = append(all, everyCommand(c)...)
			continue
		}
		all = append(all, c.CommandPath())
	}
	return all
}

func TestTheDocumentsNameTheCommandsThatTakeASuperuser(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"CHANGELOG.md", "docs/configuration.md", "docs/security.md", "docs/commands.md"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(string(text), "`", "")), " "), superuserCommands) {
			t.Errorf("%s does not name %s", name, superuserCommands)
		}
	}
}

func TestEveryCommandThatConnectsRefusesASuperuserButThoseThatAreForOne(t *testing.T) {
	t.Parallel()
	refusing := map[string][][]string{
		"lapse policy list":        {{"policy", "list"}},
		"lapse policy arm":         {{"policy", "arm", "p"}},
		"lapse policy pause":       {{"policy", "pause", "p"}},
		"lapse policy resume":      {{"policy", "resume", "p"}},
		"lapse policy show":        {{"policy", "show", "p"}},
		"lapse policy history":     {{"policy", "history", "p"}},
		"lapse hold place":         {{"hold", "place", "--table", "a.b", "--keys", "1", "--matter", "m", "--reason", "r"}},
		"lapse hold move":          {{"hold", "move", "1", "--to", "a.b", "--reason", "r"}},
		"lapse hold release":       {{"hold", "release", "1", "--reason", "r"}},
		"lapse hold list":          {{"hold", "list"}},
		"lapse hold show":          {{"hold", "show", "1"}},
		"lapse quarantine list":    {{"quarantine", "list"}},
		"lapse quarantine retry":   {{"quarantine", "retry", "p", "--all"}},
		"lapse quarantine forgive": {{"quarantine", "forgive", "p", "--all"}},
		"lapse scaffold":           {{"scaffold", "--table", "a.b", "--option", "sidecar", "--after", "1 day"}},
		"lapse hide":               {{"hide", "--policy", "p"}},
		"lapse pause":              {{"pause", "--all"}},
		"lapse resume":             {{"resume", "--all"}},
		"lapse clock accept":       {{"clock"}, {"clock", "accept", "--reason", "it is right"}},
		"lapse history accept":     {{"history"}, {"history", "accept", "--yes", "--reason", "it is the one"}},
		"lapse plan":               {{"plan"}},
		"lapse status":             {{"status"}, {"status", "--watch"}},
		"lapse run":                {{"run"}, {"run", "--once"}, {"run", "--now", "p"}},
		"lapse audit":              {{"audit"}, {"audit", "--once"}},
		"lapse keys destroy":       {{"keys", "destroy", "--epoch", "2020-01", "--yes"}},
		"lapse serve":              {{"serve", "--http", "127.0.0.1:0"}},
	}
	taking := []string{
		"lapse init", "lapse apply", "lapse import", "lapse doctor", "lapse uninstall", "lapse events", "lapse verify", "lapse version", "lapse completion",
		"lapse keys list", "lapse keys rotate", "lapse prove", "lapse report",
	}
	for _, command := range everyCommand(newRoot(&app{})) {
		if _, refuses := refusing[command]; !refuses && !slices.Contains(taking, command) {
			t.Errorf("is a superuser's login for %s?", command)
		}
	}
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		// In a database that has no installation: the login is checked before anything else.
		d := newDesk(t, db, db.Server.URL("postgres", "postgres"))
		member := db.NewRole(t, "member", "in role postgres, lapse_owner, lapse_executor, lapse_auditor")
		for _, lines := range refusing {
			for _, line := range lines {
				for login, url := range map[string]string{
					`"postgres" is a superuser`: d.env["LAPSE_DATABASE_URL"],
					fmt.Sprintf("%q is a member of the superuser %q", member, "postgres"): db.Server.URL(member, "postgres"),
				} {
					code, out, log := d.lapse(append(line, "--database", url)...)
					if code != exitInvalid || out != "" || !strings.Contains(log, login) || !strings.Contains(log, `create role "lapse" login replication;`) {
						t.Errorf("lapse %s: exit code %d, %s%s", strings.Join(line, " "), code, out, log)
					}
					if strings.Contains(log, "schema lapse") {
						t.Errorf("lapse %s looked for the installation", strings.Join(line, " "))
					}
				}
			}
		}
	})
}

func TestServeRefusesASuperuserInEachOfItsRoles(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	d := newDesk(t, db, db.URL)
	for _, c := range []struct{ executor, auditor string }{{"postgres", "lapse_auditor"}, {"lapse_executor", "postgres"}} {
		file := filepath.Join(t.TempDir(), "lapse.yaml")
		text := fmt.Sprintf("database: { owner: %q, executor: %q, auditor: %q }\n", db.As("lapse_owner"), db.As(c.executor), db.As(c.auditor))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		delete(d.env, "LAPSE_DATABASE_URL")
		code, _, log := d.lapse("serve", "--http", "127.0.0.1:0", "--config", file)
		if code != exitInvalid || !strings.Contains(log, "is a superuser") {
			t.Errorf("%+v: exit code %d, %s", c, code, log)
		}
	}
}

func TestTheLinesOfARefusalMakeALoginThatIsTaken(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		d := newDesk(t, db, db.URL)
		_, _, log := d.lapse("plan")
		lines := regexp.MustCompile(`(?m)^(create|grant) .*;$`).FindAllString(log, -1)
		if len(lines) != 2 {
			t.Fatalf("the refusal has the lines %q", lines)
		}
		login := db.Name + "_login" // roles are the server's, and other tests make "lapse"
		for i := range lines {
			lines[i] = strings.ReplaceAll(lines[i], `"lapse"`, login)
		}
		db.Exec(t, lines...)
		d.env["LAPSE_DATABASE_URL"] = db.As(login)
		for _, line := range [][]string{{"plan"}, {"policy", "list"}} {
			if code, _, log := d.lapse(line...); code != exitDone {
				t.Errorf("lapse %s: exit code %d, %s", line, code, log)
			}
		}
		if code, _, log := d.lapse("run", "--once"); code != exitFailed || !strings.Contains(log, "no process reads") {
			t.Errorf("lapse run: exit code %d, %s", code, log)
		}
	})
}

func TestASuperuserPassesWhereTheEnvironmentAllowsItWithOneWarning(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	d := newDesk(t, db, db.URL)
	d.env["LAPSE_SUPERUSER"] = "allow"
	if code, _, log := d.lapse("plan"); code != exitDone || strings.Count(log, "throw-away databases only") != 1 {
		t.Errorf("plan: exit code %d, %s", code, log)
	}
	_, _, log := d.lapse("run", "--once") // several connections
	if strings.Count(log, "throw-away databases only") != 1 {
		t.Errorf("run: %s", log)
	}
	d.env["LAPSE_DATABASE_URL"] = db.As("lapse_executor")
	if code, _, log := d.lapse("plan"); code != exitDone || strings.Contains(log, "throw-away") {
		t.Errorf("without a superuser: exit code %d, %s", code, log)
	}
}

func TestOnlyOneWordAllowsASuperuser(t *testing.T) {
	t.Parallel()
	d := &desk{t: t, env: map[string]string{"LAPSE_DATABASE_URL": "postgres://a@127.0.0.1:1/b"}}
	for _, word := range []string{"yes", "1", "ALLOW", " allow", "deny"} {
		d.env["LAPSE_SUPERUSER"] = word
		for _, command := range []string{"init", "plan", "events"} {
			code, _, log := d.lapse(command)
			if code != exitInvalid || !strings.Contains(log, "the only value is allow") {
				t.Errorf("LAPSE_SUPERUSER=%s lapse %s: exit code %d, %s", word, command, code, log)
			}
		}
	}
}

// What runs for long connects again and again.
func TestALoginThatBecomesASuperuserIsRefusedWithItsNextConnection(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		login := db.NewRole(t, "login", "replication")
		d := newDesk(t, db, db.As(login))
		db.Exec(t, "grant lapse_owner, lapse_executor, lapse_auditor to "+login)
		var out, log bytes.Buffer
		a := d.app(&out, &log)
		a.logFormat, a.logLevel = formatText, "info"
		if err := a.openLog(); err != nil {
			t.Fatal(err)
		}
		s, err := a.settings()
		if err != nil {
			t.Fatal(err)
		}
		auditor, err := a.newAuditor(t.Context(), s, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(auditor.config.Database.Close)
		executor, err := a.connection(s, s.Database.Executor, s.Roles.Executor, "lapse executor")
		if err != nil {
			t.Fatal(err)
		}

		db.Exec(t, "alter role "+login+" superuser")
		_, ofStream := replication.Open(t.Context(), auditor.config.Stream)
		_, ofExecutor := pgx.ConnectConfig(t.Context(), executor)
		for what, err := range map[string]error{
			"stream": ofStream, "beat": auditor.config.Database.Beat(t.Context(), uuid.New(), audit.Server{History: 1, Timeline: 1}), "executor": ofExecutor,
		} {
			var refused *superuserError
			if !errors.As(err, &refused) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
