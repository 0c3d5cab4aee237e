package history

import (
	"fmt"
	"slices"
	"strings"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// checkSource refuses a log that was begun for another database.
func (h *Check) checkSource() error {
	end, route := h.Topics.LogEnd, h.Route
	if !isOfSource(end, &route.Source) {
		return Refuse(ErrForeignTopic, "%s has the log of database %d of system %d; this one is %d of %d",
			"give each database topics of its own (topics)", route.Log.Name,
			end.DatabaseOID, end.SystemIdentifier, route.Source.DatabaseOID, route.Source.SystemIdentifier)
	}
	return h.checkKeys()
}

// checkKeys refuses tag keys if the log began with none of them: every deletion would be published as unverified.
func (h *Check) checkKeys() error {
	origin, is := h.Topics.origin.Content.(*evidence.OriginContent)
	if !is {
		return Refuse(ErrLogMissing, "%s begins with a record of kind %s", "somebody has deleted records of the log, which is kept forever: "+
			"put it back; if it is lost: "+anotherLog, h.Route.Log.Name, h.Topics.origin.Kind)
	}
	for _, key := range h.Keys {
		if slices.Contains(origin.Keys, schemas.Fingerprint(key)) {
			return nil
		}
	}
	return Refuse(ErrKeyChanged, "%s was begun with the key %s", "put the key named tag back (keys: in lapse.yaml)",
		h.Route.Log.Name, strings.Join(origin.Keys, ", "))
}

// historyMismatch says how the database's history in force differs from the log's; empty if it does not.
func (h *Check) historyMismatch() string {
	end, newest := h.Topics.LogEnd, h.Start.History
	switch {
	case newest.Number < end.Reach.History:
		return fmt.Sprintf("the log is in history %d, the database in history %d: it is a copy of before that was accepted",
			end.Reach.History, newest.Number)
	case newest.Number > end.Reach.History:
		return fmt.Sprintf("history %d was accepted for a log that ended at %s, and it ends at %s", newest.Number, newest.logEnd, end.Reach)
	case newest.Nonce != end.Nonce:
		return fmt.Sprintf("history %d of the database is not the one of the log", newest.Number)
	default:
		return ""
	}
}
