package change

import (
	"fmt"

	"lapse/planner/expiry"
	"lapse/planner/record"
	"lapse/schemas"
)

// tableUse is how a policy uses its table. For each use, lapse.gate allows one policy in force.
type tableUse struct {
	table uint32
	soft  bool
}

func useOf(v *record.Version) tableUse { return tableUse{v.Table, v.Definition.Soft != nil} }

// shares says why a version cannot use its table, and for which key: another policy uses it in the same way, or the policy does not delete what
// the other one sets.
func (c *comparison) shares(v *record.Version) (key, problem string) {
	d := &v.Definition
	same, partner := c.onTable[useOf(v)], c.onTable[tableUse{v.Table, d.Soft == nil}]
	if partner != nil && partner.Definition.Name == d.Name {
		partner = nil // an earlier version of the same policy
	}
	where := func(other schemas.PolicyName) string {
		if c.inFile[other] {
			return "in this file"
		}
		return "that is in force and not in this file: --prune drops it"
	}
	switch {
	case same != nil && same.Definition.Name != d.Name:
		return "table", fmt.Sprintf("%s has policy %s already, %s", d.Table, same.Definition.Name, where(same.Definition.Name))
	case partner == nil:
		return "", ""
	}
	soft, purge := d, &partner.Definition
	if d.Soft == nil {
		soft, purge = purge, d
	}
	if age, is := purge.Expire.(*expiry.Age); is && age.Column == soft.Soft.Name {
		if zone := age.Zone; zone != "" && zone != "UTC" {
			return "expire", fmt.Sprintf("policy %s sets %s in UTC, and %s would read it in %s, hours too early or too late: zone: UTC", soft.Name, schemas.Identifier(soft.Soft.Name), purge.Name, zone)
		}
		return "", ""
	}
	return "table", fmt.Sprintf("%s has policy %s already, %s: beside a policy that sets %s there may be one that deletes by it, with expire: { column: %s, after: … }",
		d.Table, partner.Definition.Name, where(partner.Definition.Name), schemas.Identifier(soft.Soft.Name), soft.Soft.Name)
}
