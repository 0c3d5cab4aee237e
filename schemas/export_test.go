package schemas

// ReadMigrations is for tests of folders that are not ours.
var ReadMigrations = readMigrations

// DraftTexts are the texts that drafts are made of.
var DraftTexts = functionTexts

// Unreleased are the versions that no release may have.
var Unreleased = unreleased
