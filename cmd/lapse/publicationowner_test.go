package main

import (
	"fmt"
	"strings"
	"testing"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// A restore without owners leaves publications of Lapse's names with the role that restored. init says whose they are, and what it prints is enough.
func TestAPublicationOfAnotherOwnerIsNamedWithWhatToRun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		p := newPremises(t, db, kafkatest.Broker(t), fmt.Sprintf("%q", db.URL))
		other := db.NewRole(t, "restorer")
		db.Exec(t, fmt.Sprintf(`grant create on database %[1]s to %[2]s; set role %[2]s;
			create publication lapse_ledger with (publish = 'insert');
			create publication lapse_catalog`, db.Name, other))
		said := p.fails(exitFailed, "init", "--keys", "keys")
		says(t, said, "lapse_catalog of "+other+", lapse_ledger of "+other+":", "have a superuser run this")
		_, script, _ := strings.Cut(said, "\n\n")
		db.Exec(t, script)
		p.goOn()
	})
}
