package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// ConnString is how to reach a database: a URL or keywords and values, as libpq takes them. Empty is what the PG*
// variables say. It holds a password: String hides it.
type ConnString string

// String is the part that may be shown: address, database and login.
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

// Login is the role that the connection logs in as.
func (c ConnString) Login() (string, error) {
	parsed, err := c.parse()
	if err != nil {
		return "", err
	}
	return parsed.User, nil
}

// parse reads the string. pgconn's own error hides passwords.
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
	_, err := ConnString(text).parse()
	return err
}

// Database is how each of the three roles reaches the database. One connection string may stand for all.
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
