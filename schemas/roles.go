package schemas

import (
	"strconv"
	"strings"
)

// Roles are the names of an installation's roles. Roles belong to the cluster, not to the database: two databases need different
// prefixes.
type Roles struct {
	Owner    string // the catalog, the publications and the functions that all policies share; no right on any user's table
	Executor string // may call the functions per policy
	Auditor  string // reads the write-ahead log
	// Login acts as owner, executor and auditor in an installation that does not separate them.
	Login string
	// DeleterPrefix begins the names of the deleters: there is one role for each owner of tables with policies.
	DeleterPrefix string
}

// DefaultRolePrefix begins role names unless lapse.yaml says otherwise.
const DefaultRolePrefix = "lapse_"

// RolesFor returns the role names with a prefix.
func RolesFor(prefix string) Roles {
	login := strings.TrimRight(prefix, "_")
	if login == "" || login == prefix {
		login = prefix + "login"
	}
	return Roles{
		Owner: prefix + "owner", Executor: prefix + "executor", Auditor: prefix + "auditor",
		Login: login, DeleterPrefix: prefix + "deleter_",
	}
}

// Deleter returns the role that owns the functions for one owner's tables, and is a member of that owner alone. Its name contains the
// owner's oid, so two databases of a cluster never share a deleter for two owners.
func (r Roles) Deleter(owner uint32) string {
	return r.DeleterPrefix + strconv.FormatUint(uint64(owner), 10)
}
