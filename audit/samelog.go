package audit

import (
	"fmt"
	"slices"
	"strings"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// anotherLog says how to go on without the log that there was.
const anotherLog = "stop the audit, drop the slot, name new topics in lapse.yaml (topics) and run lapse init --new-slot: another " +
	"log begins there, and what was deleted before it is in no evidence"

// checkSource refuses a log that was begun for another database.
func (h *historyCheck) checkSource() error {
	end, route := h.topics.logEnd, h.route
	if !isOfSource(end, &route.Source) {
		return refusal(errForeignTopic, "%s has the log of database %d of system %d; this one is %d of %d",
			"give each database topics of its own (topics)", route.Log.Name,
			end.DatabaseOID, end.SystemIdentifier, route.Source.DatabaseOID, route.Source.SystemIdentifier)
	}
	return h.checkKeys()
}

// checkKeys refuses tag keys of which none is one that the log was begun with: every deletion would be published as
// unverified.
func (h *historyCheck) checkKeys() error {
	if h.topics.origin.Kind != evidence.KindOrigin {
		return refusal(errLogMissing, "%s begins with a record of kind %s", "somebody has deleted records of the log, which is kept for ever: "+
			"put it back; if it is lost: "+anotherLog, h.route.Log.Name, h.topics.origin.Kind)
	}
	known := h.topics.origin.Keys["tag"]
	for _, key := range h.auditor.config.Keys {
		if slices.Contains(known, schemas.Fingerprint(key)) {
			return nil
		}
	}
	return refusal(errKeyChanged, "%s was begun with the key %s", "put the key named tag back (keys: in lapse.yaml)",
		h.route.Log.Name, strings.Join(known, ", "))
}

// historyMismatch says why the history in force in the database is not the log's; empty if it is.
func (h *historyCheck) historyMismatch() string {
	end, newest := h.topics.logEnd, h.start.history
	switch {
	case newest.number < end.Reach.History:
		return fmt.Sprintf("the log is in history %d, the database in history %d: it is a copy of before that was accepted",
			end.Reach.History, newest.number)
	case newest.number > end.Reach.History:
		return fmt.Sprintf("history %d was accepted for a log that ended at %s, and it ends at %s", newest.number, newest.logEnd, end.Reach)
	case newest.nonce != end.Nonce:
		return fmt.Sprintf("history %d of the database is not the one of the log", newest.number)
	default:
		return ""
	}
}
