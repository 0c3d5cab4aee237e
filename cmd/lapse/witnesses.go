package main

import (
	"lapse/audit"
	"lapse/audit/tree"
	witnesses "lapse/audit/witness"
	"lapse/internal/config"
)

// showConfig configures the witnesses to which the auditor shows the log's checkpoints.
func (a *app) showConfig(s *config.Settings, c *audit.Config) error {
	c.Quorum = s.Witnesses.Quorum
	for _, w := range s.Witnesses.All {
		key, err := tree.ParseWitness(w.Key)
		if err != nil {
			return invalid(err)
		}
		c.Witnesses = append(c.Witnesses, witnesses.Witness{URL: w.URL, Key: key})
	}
	for _, to := range s.Anchors {
		switch {
		case to.File != "":
			c.Anchors = append(c.Anchors, witnesses.FileAnchor{Path: to.File})
		case to.URL != "":
			c.Anchors = append(c.Anchors, witnesses.WebAnchor{URL: to.URL})
		default:
			c.Anchors = append(c.Anchors, &witnesses.PrintAnchor{To: a.raw()})
		}
	}
	return nil
}
