//! What the public can make the bot do, which is little; and what a bad day of GitHub's or ours loses, which is
//! nothing.
