package main

import (
	"fmt"
	"strings"
)

// scenario is how the server is reached, and what its log has of a deleted row.
type scenario struct {
	Transport transport `json:"transport"`
	Identity  identity  `json:"identity"`
}

type transport string

const (
	unix transport = "unix"
	tcp  transport = "tcp"
)

// identity is the replica identity of the table, and who deletes from it.
type identity string

const (
	keyOnly identity = "default" // the primary key; a policy deletes
	columns identity = "columns" // a unique index with all columns, which the policy has in its events
	full    identity = "full"    // REPLICA IDENTITY FULL: policies do not delete from such a table, so the application does
)

var (
	transportTitles = map[transport]string{unix: "Unix socket", tcp: "TCP"}
	identityTitles  = map[identity]string{keyOnly: "", columns: ", all columns by an index", full: ", REPLICA IDENTITY FULL"}
)

func (s scenario) String() string { return transportTitles[s.Transport] + identityTitles[s.Identity] }

// named says whether Lapse's events name their row.
func (s scenario) named() bool { return s.Identity != full }

// parseScenarios reads the values of -transports and -identity.
func parseScenarios(transports, identities string) (all []scenario, err error) {
	for i := range strings.SplitSeq(identities, ",") {
		if _, known := identityTitles[identity(i)]; !known {
			return nil, fmt.Errorf("-identity %q: there are default, columns and full", identities)
		}
		for t := range strings.SplitSeq(transports, ",") {
			if _, known := transportTitles[transport(t)]; !known {
				return nil, fmt.Errorf("-transports %q: there are unix and tcp", transports)
			}
			all = append(all, scenario{transport(t), identity(i)})
		}
	}
	return all, nil
}

// setup are the statements that give the table its identity before Lapse is told of it.
func (i identity) setup() []string {
	if i != columns {
		return nil
	}
	return []string{
		"create unique index sessions_identity on shop.sessions (id, tenant, at, note)",
		"alter table shop.sessions replica identity using index sessions_identity",
	}
}

// policyFile is the policy. Its events have the other columns if the log has them.
func (i identity) policyFile() string {
	file := `policies:
  - name: bench
    table: shop.sessions
    expire: {column: at, after: 30 days}
    state: armed
    pace: unlimited
`
	if i == columns {
		file += "    events: {columns: [tenant, at, note]}\n"
	}
	return file
}
