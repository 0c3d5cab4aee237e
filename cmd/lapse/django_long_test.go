//go:build long

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// djangoSite is a Django site: its Python, and the folder with its settings.
type djangoSite struct {
	*estate
	python string
}

// django runs one of Django's own commands, or a script of testdata/django.
func (s *djangoSite) django(args ...string) string {
	s.t.Helper()
	return s.runs("env", append([]string{"DJANGO_SETTINGS_MODULE=settings", "PYTHONPATH=testdata/django", "PYTHONDONTWRITEBYTECODE=1", s.python}, args...)...)
}

// A Django site's tables, made by its own migrations, keep to their policies from the first look to the events, without a superuser where PostgreSQL allows
// that, beside Django's own clearsessions.
func TestADjangoSiteKeepsItsPoliciesBesideClearsessions(t *testing.T) {
	t.Parallel()
	python := filepath.Join(t.TempDir(), "venv")
	requirements, err := filepath.Abs("testdata/django/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	fetched(t, ".", "python3", "-m", "venv", python)
	fetched(t, ".", filepath.Join(python, "bin/pip"), "install", "--quiet", "--requirement", requirements)
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		const n, rounds = 500, 5
		s := &djangoSite{python: filepath.Join(python, "bin/python"), estate: newEstate(t, db, "django",
			estateTable{"django_session", `'public.django_session {"session_key":"' || session_key || '"}'`, `expire_date <= now()`},
			estateTable{"django_admin_log", `'public.django_admin_log {"id":"' || id || '"}'`, `action_time < now() - interval '95 days'`},
			estateTable{"django_celery_results_taskresult", `'public.django_celery_results_taskresult {"id":"' || id || '"}'`, `date_done < now() - interval '35 days'`})}
		s.django("-m", "django", "migrate", "--verbosity", "0")
		fill := func(round int) { s.django("testdata/django/fill.py", strconv.Itoa(n), strconv.Itoa(round)) }
		fill(1)
		s.install()
		before, due := s.read(false), s.read(true)
		if len(before) != 6*n || len(due) != 3*n {
			t.Fatalf("%d rows, %d due, want %d and %d", len(before), len(due), 6*n, 3*n)
		}
		// Nobody runs lapse yet: these sessions are the user's.
		s.django("-m", "django", "clearsessions")
		clear := len(due) - len(s.read(true))
		s.deletes(func() {
			for round := 2; round <= rounds; round++ {
				fill(round)
				for i := range 2 * n {
					row := fmt.Sprintf(`public.django_session {"session_key":"%d-%d"}`, round, i)
					before[row], due[row] = true, i < n
				}
				if round < rounds {
					s.django("-m", "django", "clearsessions")
				}
			}
		})
		system, user := s.compare(before, due, func(row string) bool { return strings.HasPrefix(row, "public.django_session ") })
		if clear != n || system < 3*n || user < n {
			t.Errorf("clearsessions deleted %d at first, then %d rows were the system's and %d the user's: want %d, %d at least, %d at least",
				clear, system, user, n, 3*n, n)
		}
	})
}
