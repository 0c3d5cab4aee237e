package schemas

import (
	"strconv"
	"strings"
)

// Roles are the names of an installation's roles. They belong to the cluster, not to the database: a prefix of its own
// keeps two databases apart.
type Roles struct {
	Owner    string // the catalog, the publications and the functions that all policies share; no right on anybody's table
	Executor string // may call the functions per policy
	Auditor  string // reads the write-ahead log
	// Login plays owner, executor and auditor where nobody wants three logins.
	Login string
	// DeleterPrefix is what the names of the deleters begin with: one role for each owner of tables with policies.
	DeleterPrefix string
}

// DefaultRolePrefix is what role names begin with when lapse.yaml says nothing.
const DefaultRolePrefix = "lapse_"

// RolesFor returns the role names that begin with prefix.
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

// Deleter is the role that owns the functions for one owner's tables, and is a member of that owner alone. It is named by
// the owner's oid, so that two databases of a cluster never give one deleter two owners.
func (r Roles) Deleter(owner uint32) string {
	return r.DeleterPrefix + strconv.FormatUint(uint64(owner), 10)
}
