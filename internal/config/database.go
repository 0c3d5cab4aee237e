package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// ConnString is a connection string: a URL, or keywords and values, as libpq takes them. If it is empty, the PG* variables apply. It may
// contain a password, which String hides.
type ConnString string

// String returns the address, database and login, without the password.
func (c ConnString) String() string {
	parsed, err := c.parse()
	if err != nil {
		return "a connection string that cannot be read"
	}
	host := parsed.Host
	if len(host) > 0 && host[0] != '/' {
		host = net.JoinHostPort(host, strconv.Itoa(int(parsed.Port)))
	}
	database := parsed.Database
	if database == "" {
		database = parsed.User
	}
	return fmt.Sprintf("database %q at %s as %q", database, host, parsed.User)
}

// GoString hides the password from %#v too.
func (c ConnString) GoString() string { return c.String() }

// Login is the role that the connection string names.
func (c ConnString) Login() (string, error) {
	parsed, err := c.parse()
	if err != nil {
		return "", err
	}
	return parsed.User, nil
}

// parse parses the string. pgconn hides passwords in its errors.
func (c ConnString) parse() (*pgconn.Config, error) {
	parsed, err := pgconn.ParseConfig(string(c))
	if err != nil {
		return nil, fmt.Errorf("read the database's connection string: %w", err)
	}
	return parsed, nil
}

func checkConnString(text string) error {
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("%q is no connection string: write postgres://LOGIN@HOST/DATABASE", text)
	}
	if _, err := ConnString(text).parse(); err != nil {
		return fmt.Errorf("%w: write postgres://LOGIN@HOST/DATABASE", err)
	}
	return nil
}

// Database holds the connection strings of the three roles. One connection string may serve all three.
type Database struct{ Owner, Executor, Auditor ConnString }

// sameFor uses one login for all three roles.
func sameFor(c ConnString) Database { return Database{Owner: c, Executor: c, Auditor: c} }

// Name is the database's name. All connection strings must name the same.
func (d Database) Name() (string, error) {
	var name string
	for _, c := range []ConnString{d.Owner, d.Executor, d.Auditor} {
		parsed, err := c.parse()
		if err != nil {
			return "", err
		}
		database := parsed.Database
		if database == "" {
			database = parsed.User
		}
		if name != "" && name != database {
			return "", fmt.Errorf("owner, executor and auditor are to work on one database, not on %q and %q", name, database)
		}
		name = database
	}
	return name, nil
}
